"""TFJob as the API holds it.

Source of fields and defaults: kubeflow/training-operator 1.9,
pkg/apis/kubeflow.org/v1/tensorflow_types.go, and for v1alpha2 the design of the TF operator.
"""

import enum
from typing import Final

import msgspec

from edgeai.api.definitions import Definition
from edgeai.api.resources import ResourceType
from edgeai.api.training import (
    SUSPENSIONS,
    CleanPods,
    ReplicaForm,
    ReplicaStatus,
    RunPolicy,
    TrainingStatus,
)


class SuccessPolicy(enum.StrEnum):
    """When a job without a chief has succeeded."""

    DEFAULT = ""
    """Worker 0 has succeeded, or all workers have."""
    ALL_WORKERS = "AllWorkers"


class TFJobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Training with TensorFlow in several pods."""

    run_policy: RunPolicy = RunPolicy()
    success_policy: SuccessPolicy | None = None
    """When a job without a chief has succeeded: with AllWorkers when all workers have, else when
    worker 0 has. Worker 0 when the field is missing."""
    tf_replica_specs: dict[str, ReplicaForm] = msgspec.field(name="tfReplicaSpecs")
    """PS, Worker, Chief, Master and Evaluator, in any upper and lower case. v1alpha2 calls the
    evaluator Eval."""
    enable_dynamic_worker: bool = False
    """The number of workers may change while the job runs."""
    clean_pod_policy: CleanPods | None = None
    """Another name of `runPolicy.cleanPodPolicy`, from v1alpha2. Running in v1alpha2 when the
    field is missing."""


class TFJobStatus(TrainingStatus, frozen=True, kw_only=True, rename="camel"):
    replica_statuses: dict[str, ReplicaStatus] = {}
    tf_replica_statuses: dict[str, ReplicaStatus] = msgspec.field(
        name="tfReplicaStatuses", default_factory=dict
    )
    """The name of `replicaStatuses` in v1alpha2."""
    profile: str = ""
    """The conventions that hold for this job: v1 or v1alpha2."""


DEFINITION: Final = Definition(
    types=(
        ResourceType("kubeflow.org", "v1", "tfjobs", "TFJob"),
        ResourceType("kubeflow.org", "v1alpha2", "tfjobs", "TFJob"),
    ),
    spec=TFJobSpec,
    status=TFJobStatus,
    suspensions=SUSPENSIONS,
)
