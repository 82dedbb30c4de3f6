"""The Secrets of a FederatedLearningJob: one for each worker, used by the pod of that worker alone.

Kubernetes lets a node read each Secret to which a pod on the node refers. So what the nodes of two
workers must not know of each other is in two Secrets. Each has the name of its worker's pod.

The aggregator has the secret of the job. Each trainer has a secret that the aggregator derives from
the secret of the job and the trainer's name. So no trainer can speak for another.

Earlier releases kept the secrets of all workers in one Secret. A pod of such a release runs on. As
long as there is one, the job keeps that Secret, with the keys of such pods alone.
"""

import enum
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from edgeai.api.federatedlearningjob import FederatedLearningJobSpec
from edgeai.api.objects import is_being_deleted
from edgeai.api.pod_state import phase_of
from edgeai.api.resources import SECRETS, ObjectRef
from edgeai.participants import participant_secret
from globalmanager.contract import Create, Delete, Observed
from globalmanager.kinds.edge.federatedlearningjob import progress
from globalmanager.kinds.edge.federatedlearningjob.spec import AGGREGATION, TRAIN, worker_name
from globalmanager.kinds.shared import children
from globalmanager.kinds.shared.lifecycle import own_pods
from globalmanager.kinds.shared.pods import WORKER_SECRET
from globalmanager.kinds.shared.secrets import worker_secret

JOB_SECRET: Final = "JOB_SECRET"
PARTICIPANT_SECRET: Final = "PARTICIPANT_SECRET"
PARTICIPANTS: Final = "participants.json"
_JOB: Final = "job"  # role from which edgeai derives the secret of the job


class Layout(enum.Enum):
    """How the secrets of the workers are divided into Secrets."""

    SEPARATE = "separate"
    JOINT = "joint"
    """One Secret for all workers, as in earlier releases."""


class Place(NamedTuple):
    """Name of a Secret and key in it."""

    secret: str
    key: str


def place(observed: Observed, name: str, index: int | None, layout: Layout) -> Place:
    """Where a worker finds one of its values.

    Args:
        name: JOB_SECRET or PARTICIPANTS of the aggregator; PARTICIPANT_SECRET or WORKER_SECRET of a
            trainer
        index: of the trainer; None for the aggregator
    """
    # The Secret has the name of the pod, so a Secret of a removed trainer is obsolete with its pod.
    if layout is Layout.SEPARATE:
        return Place(worker_name(observed.ref.name, index), name)
    keys = {
        JOB_SECRET: _JOB,
        PARTICIPANTS: PARTICIPANTS,
        PARTICIPANT_SECRET: f"participant-{index}",
        WORKER_SECRET: f"{TRAIN}-{index}",
    }
    return Place(joint_secret(observed).name, keys[name])


def joint_secret(observed: Observed) -> ObjectRef:
    """The one Secret of a job of an earlier release."""
    return ObjectRef(SECRETS, observed.ref.namespace, f"{observed.ref.name}-federation")


def desired(
    observed: Observed, spec: FederatedLearningJobSpec, joint: Collection[str] = ()
) -> tuple[Create, ...]:
    """The Secret of each worker, and the one of earlier releases as long as pods need it.

    Args: joint: names of the pods that need it
    """
    job = observed.ref.name
    texts: dict[str, dict[str, str]] = {}
    for index, name, text in _values(observed, spec):
        # The keys of a worker that is made again leave the one that nodes of all old pods can read.
        for layout in Layout if worker_name(job, index) in joint else (Layout.SEPARATE,):
            secret, key = place(observed, name, index, layout)
            texts.setdefault(secret, {})[key] = text
    aggregator = worker_name(job, None)
    return tuple(
        children.secret(
            observed, name=name, role=AGGREGATION if name == aggregator else TRAIN, values=values
        )
        for name, values in texts.items()
    )


def joint_users(observed: Observed, separate: Iterable[Create] = ()) -> frozenset[str]:
    """Names of the pods that may refer to the Secret of earlier releases: pods that have not ended,
    but not those that are as in `separate`.
    """
    # Not those that have ended, but one that is being deleted: a container may start again.
    pods = {
        pod["metadata"]["name"]
        for pod in own_pods(observed)
        if phase_of(pod) not in ("Succeeded", "Failed")
    }
    current = (create.object for create in separate if children.is_current(observed, create))
    return frozenset(pods.difference(pod["metadata"]["name"] for pod in current))


def clean_up(observed: Observed) -> tuple[Delete, ...]:
    """The deletion of the Secret of earlier releases in a job that makes no more pods."""
    secret = observed.children.get(joint_secret(observed))
    # A job that has ended has no reconciliation that would find the Secret obsolete.
    if secret is None or is_being_deleted(secret) or joint_users(observed):
        return ()
    return (Delete(joint_secret(observed), secret["metadata"]["uid"]),)


def trainer_secret(observed: Observed, index: int) -> str:
    """The secret by which a trainer reports to the LocalController of its node."""
    # A secret for each index: with one for all, each node could report for the others' trainers.
    return worker_secret(observed.settings.root_key, observed.uid, f"{TRAIN}-{index}")


def _values(
    observed: Observed, spec: FederatedLearningJobSpec
) -> Iterator[tuple[int | None, str, str]]:
    """Index of the trainer (None: the aggregator), name of the value, value."""
    job_secret = worker_secret(observed.settings.root_key, observed.uid, _JOB)
    yield None, JOB_SECRET, job_secret
    yield None, PARTICIPANTS, _limits(observed, spec)
    for index in range(len(spec.training_workers)):
        trainer = worker_name(observed.ref.name, index)
        yield index, PARTICIPANT_SECRET, participant_secret(job_secret, trainer)
        yield index, WORKER_SECRET, trainer_secret(observed, index)


def _limits(observed: Observed, spec: FederatedLearningJobSpec) -> str:
    """Trainer -> the number of samples in its Dataset, in JSON; null without a count."""
    counts = progress.sample_counts(observed, is_over=False)
    names = (worker_name(observed.ref.name, index) for index in range(len(spec.training_workers)))
    # Trainers without a count are named as well: the aggregator lets nobody else take part.
    limits = {name: counts.get(name) for name in names}
    return msgspec.json.encode(limits).decode()
