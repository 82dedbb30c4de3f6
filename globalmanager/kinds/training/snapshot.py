"""One training job at one moment, and what a plan reads from it: numbers, restarts, status fields.

Nothing here makes an action.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from edgeai.api.pod_state import phase_of
from edgeai.api.resources import Object
from edgeai.api.status import mapping
from globalmanager.contract import Event, Observed, Severity
from globalmanager.kinds.shared import status
from globalmanager.kinds.shared.attempts import attempt_of
from globalmanager.kinds.shared.job_conditions import Conditions, State
from globalmanager.kinds.shared.queued_pods import forgotten, has_room, waiting_reason
from globalmanager.kinds.shared.silent_nodes import has_quota
from globalmanager.kinds.training import replicas, waiting
from globalmanager.kinds.training.framework import Counts, KubeflowJob
from globalmanager.kinds.training.history import Failure, History
from globalmanager.kinds.training.replicas import Member

NOT_ELASTIC: Final = "NotElastic"


class Snapshot(NamedTuple):
    """One job at one moment."""

    observed: Observed
    spec: KubeflowJob
    now: datetime
    conditions: Conditions
    history: History
    members: Sequence[Member]
    """The replicas that the spec has."""
    pods: Mapping[str, Object]
    """Name of a replica -> its pod."""

    @property
    def text(self) -> str:
        """The job in messages: "TFJob mnist"."""
        return f"{self.spec.framework.kind} {self.observed.ref.name}"


# ---- restarts -----------------------------------------------------------------------------------


def is_restarting(job: Snapshot) -> bool:
    """Whether a failed replica does not run again yet. A tolerant type's failure stays."""
    return job.conditions.is_true(State.RESTARTING) and any(
        # A pod that pends before its first failure is not a restart, however long it pends.
        job.history.attempt(name) > 0
        and name not in job.history.finished
        and (name not in job.pods or not _has_come_up(job.pods[name], job.history.attempt(name)))
        for name, _, _ in job.members
    )


def _has_come_up(pod: Object, attempt: int) -> bool:
    """Whether the pod of this attempt runs, or has ended."""
    # A failed pod counts as up: a tolerated worker that failed for good must not keep the job here.
    return phase_of(pod) != "Pending" and attempt_of(pod) >= attempt


def history_after(job: Snapshot, failed: list[Failure]) -> History:
    """The history with the failures that are retried."""
    # A failure that is final ends the job or is tolerated, so it asks for no new attempt.
    retried = [one for one in failed if one.is_retryable]
    return job.history.after(retried, job.spec.policy.restart_scope) if retried else job.history


# ---- the numbers of pods ------------------------------------------------------------------------


def counts(job: Snapshot) -> dict[str, Counts]:
    """Type -> numbers, of all types that the spec has."""
    type_counts = {}
    for replica in job.spec.replicas:
        names = [name for name, member, _ in job.members if member is replica]
        present = [job.pods[name] for name in names if name in job.pods]
        type_counts[replica.type] = Counts(
            desired=replica.count,
            # The operator counts a running pod that is being deleted as failed, which it is not.
            active=sum(
                phase_of(pod) == "Running"
                and has_quota(job.observed, pod, is_suspended=bool(job.spec.policy.suspend))
                for pod in present
            ),
            # Pods of finished replicas disappear, so only the history knows them all.
            succeeded=sum(name in job.history.finished for name in names),
            failed=sum(phase_of(pod) == "Failed" for pod in present),
        )
    return type_counts


def elastic(job: Snapshot) -> dict[str, Any]:
    recorded = mapping(status.status_of(job.observed).get("elastic"))
    if job.spec.elastic is None:
        if _has_lost_room(job):
            return {}  # the field tells that these replicas start again
        if job.spec.not_elastic:
            return {"elastic": {"reason": NOT_ELASTIC, "message": job.spec.not_elastic}}
        return forgotten(job.observed)
    # A replica that is done waits for nothing, and the master is no worker that may wait.
    unfinished = [
        name
        for name, replica, _ in job.members
        if replica.type == job.spec.elastic.type and name not in job.history.finished
    ]
    waits = [name for name in unfinished if not (name in job.pods and has_room(job.pods[name]))]
    fields: dict[str, Any] = {
        "ready": counts(job)[job.spec.elastic.type].active,
        "waiting": len(waits),
        **waiting_reason([job.pods[name] for name in waits if name in job.pods], recorded),
    }
    return {"elastic": fields}


def _has_lost_room(job: Snapshot) -> bool:
    """Whether a replica of an elastic job, or of one that was elastic, is to start again."""
    return any(
        name in job.pods
        and waiting.has_lost_room(job.observed, job.spec, replica.type, job.pods[name])
        for name, replica, _ in job.members
    )


def not_elastic(job: Snapshot) -> tuple[Event, ...]:
    """The event about a job that is not elastic although its user asks for this. The field elastic
    of .status has the same words, so it comes once, also after a change of an annotation.
    """
    recorded = mapping(status.status_of(job.observed).get("elastic"))
    is_told = recorded.get("reason") == NOT_ELASTIC or _has_lost_room(job)
    if not job.spec.not_elastic or is_told:
        return ()
    return (Event(Severity.WARNING, NOT_ELASTIC, job.spec.not_elastic),)


def statuses(
    job: Snapshot, counts: Mapping[str, Counts], end: State | None = None
) -> dict[str, Any]:
    """The numbers for the status. After success, an active replica counts as succeeded."""
    framework, name = job.spec.framework, job.observed.ref.name
    entries = {}
    for type_, numbers_of_type in counts.items():
        # As upstream: the job is over, so no replica of it is active any more.
        is_done = end is State.SUCCEEDED
        numbers = {
            "active": 0 if is_done else numbers_of_type.active,
            "succeeded": numbers_of_type.succeeded + (numbers_of_type.active if is_done else 0),
            "failed": numbers_of_type.failed,
        }
        labels = replicas.type_labels(name, framework, type_)
        # An autoscaler finds the pods that it measures by this text of the scale subresource.
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        # The design of v1alpha2 says Eval where version 0.3 of the operator says Evaluator.
        key = job.spec.status_keys.get(type_, type_)
        entries[key] = {state: n for state, n in numbers.items() if n} | {"selector": selector}
    return {**framework.marks, framework.statuses_field: entries}
