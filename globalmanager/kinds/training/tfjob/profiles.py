"""The conventions of TFJob in its two API versions, as values.

v1 follows kubeflow/training-operator 1.9. v1alpha2 follows the design of the TF operator
(tf-operator-design-v1alpha2), where the restart policy defaults to Always, the evaluator is called
Eval and stays outside the cluster, and the status has tfReplicaStatuses.

The API server stores every job as v1. So the version in which a user wrote a job is known from the
annotation `edgeai.io/profile`, from kubectl's own annotation, or from managedFields.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from edgeai.api.resources import Object
from edgeai.api.status import mapping, mappings
from edgeai.api.training import CleanPods, RestartPolicy
from globalmanager.kinds.training.framework import Counts, Framework, KubeflowJob
from globalmanager.kinds.training.tfjob import cluster
from globalmanager.kinds.training.tfjob.cluster import CHIEF, EVALUATOR, MASTER, PS, WORKER

PROFILE: Final = "edgeai.io/profile"
"""Annotation: the API version whose conventions hold for the job."""
_EVAL: Final = "Eval"
ALIASES: Final = {_EVAL.lower(): EVALUATOR}
"""Other names of replica types, in lower case."""
_GROUP: Final = "kubeflow.org/"
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def has_succeeded(
    spec: KubeflowJob, counts: Mapping[str, Counts], finished: Collection[str]
) -> bool:
    """The chief or master decides. Without one, worker 0 or all workers decide; with the success
    policy AllWorkers only all workers. A type with 0 replicas decides nothing.
    """
    # Upstream 0 of 0 replicas are a success at once.
    counts = {type_: numbers for type_, numbers in counts.items() if numbers.desired}
    for type_ in spec.framework.leaders:
        if type_ in counts:
            return counts[type_].unfinished <= 0
    worker = counts.get(WORKER)
    if worker is None:  # a job of parameter servers or evaluators alone
        # A job that is scaled to 0 replicas waits.
        return bool(counts) and all(numbers.unfinished <= 0 for numbers in counts.values())
    if worker.unfinished <= 0:
        return True
    is_first_done = any(name.endswith(f"-{WORKER.lower()}-0") for name in finished)
    return is_first_done and spec.spec.success_policy != "AllWorkers"


def deciding(spec: KubeflowJob) -> str:
    present = [replica.type for replica in spec.replicas if replica.count] or [
        spec.replicas[0].type
    ]
    return next((type_ for type_ in (CHIEF, MASTER, WORKER) if type_ in present), present[0])


V1: Final = Framework(
    kind="TFJob",
    operator="tfjob-controller",
    replicas_field="spec.tfReplicaSpecs",
    # The order in which the operator visits the types.
    types=(CHIEF, EVALUATOR, MASTER, PS, WORKER),
    leaders=(CHIEF, MASTER),
    container="tensorflow",
    port_name="tfjob-port",
    port=2222,
    restart_policy=RestartPolicy.NEVER,
    clean_pods=CleanPods.NONE,
    environment=cluster.environment,
    fault=cluster.fault,
    sets_every_container=False,
    has_succeeded=has_succeeded,
    deciding=deciding,
    marks={"profile": "v1"},
)
V1ALPHA2: Final = msgspec.structs.replace(
    V1,
    restart_policy=RestartPolicy.ALWAYS,
    # The design names no default. Version 0.3 of the TF operator deletes pods that run.
    clean_pods=CleanPods.RUNNING,
    statuses_field="tfReplicaStatuses",
    marks={"profile": "v1alpha2"},
    environment=cluster.environment_without_evaluator,
    sets_every_container=True,
)
PROFILES: Final = {"v1": V1, "v1alpha2": V1ALPHA2}


def framework_of(object_: Object) -> Framework:
    """The conventions for a job. Total."""
    return next((PROFILES[version] for version in _versions(object_) if version in PROFILES), V1)


def status_keys(framework: Framework, types: Iterable[str]) -> dict[str, str]:
    """Type -> its key in .status.tfReplicaStatuses, where the spec calls the evaluator Eval. The
    training operator, and so v1, knows no other word than Evaluator.

    Args: types: the replica types as the spec spells them
    """
    is_eval = framework is V1ALPHA2 and any(type_.lower() in ALIASES for type_ in types)
    return {EVALUATOR: _EVAL} if is_eval else {}


def _versions(object_: Object) -> Iterator[str]:
    """What is known of the version in which the job was written, the surest first."""
    # The status comes first: a later edit in another version must not change a running job.
    yield str(mapping(object_.get("status")).get("profile", ""))
    annotations = mapping(mapping(object_.get("metadata")).get("annotations"))
    yield str(annotations.get(PROFILE, ""))
    yield _version(mapping(_decoded(annotations.get(_APPLIED))).get("apiVersion"))
    for entry in mappings(mapping(object_.get("metadata")).get("managedFields")):
        # Who wrote only labels or the status did not choose the version of the spec.
        if "f:spec" in mapping(entry.get("fieldsV1")):
            yield _version(entry.get("apiVersion"))


def _version(api_version: Any) -> str:
    return str(api_version).removeprefix(_GROUP)


def _decoded(text: Any) -> Any:
    try:
        # Anybody can edit an annotation, and a plan must not raise.
        return json.loads(text)
    except (TypeError, ValueError):
        return None
