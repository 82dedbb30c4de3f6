"""The parts of a training job's spec and status that several kinds share.

Source of fields and defaults: kubeflow/training-operator 1.9,
pkg/apis/kubeflow.org/v1/common_types.go.
"""

import enum
from typing import Annotated, Any, Final

import msgspec

from edgeai.api.definitions import Suspension
from edgeai.api.schemas import kubernetes
from edgeai.api.status import LIST_BY_TYPE, Int32, Time
from edgeai.api.templates import Template


class CleanPods(enum.StrEnum):
    """Which pods the plan deletes at the end of a job."""

    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


MAX_REPLICAS: Final = 1000
"""Of one type. The names of all replicas fit into the status."""
SUSPENSIONS: Final = (Suspension(("spec", "runPolicy", "suspend")),)
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class RestartPolicy(enum.StrEnum):
    """What becomes of a replica whose containers have ended."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"
    """An exit code of 128 and above is retried, a code of 1 to 127 is final. A pod without an exit
    code, for example an evicted pod, is retried."""


class ReplicaForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All replicas of one type."""

    replicas: Annotated[int, msgspec.Meta(ge=0, le=MAX_REPLICAS)] | None = None
    """The number of pods of the type. 1 when the field is missing."""
    template: Template
    restart_policy: RestartPolicy | None = None
    """Replaces the restart policy of the template. OnFailure of a PyTorchJob, Never of a
    TFJob (Always in v1alpha2), when the field is missing."""


class SchedulingPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """The wishes for a gang scheduler. They go into a PodGroup."""

    min_available: Count | None = None
    """Pods that must start together. All, or of an elastic job as many as it needs, when the
    field is missing."""
    queue: str | None = None
    """The queue of the PodGroup of Volcano. default when the field is missing."""
    min_resources: dict[str, Annotated[Any, kubernetes("Quantity")]] | None = None
    """What these pods need together. The sum of their requests when the field is missing."""
    priority_class: str | None = None
    """The priority of the PodGroup of Volcano."""
    schedule_timeout_seconds: Count | None = None
    """Goes into the PodGroup of scheduler-plugins."""


class RestartScope(enum.StrEnum):
    """Which pods start again when one replica has failed in a way that is retried."""

    REPLICA = "Replica"
    JOB = "Job"
    """All pods of the job together. Collective training needs this, because the other processes
    cannot go on with a new member."""


class RunPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The rules for the life of a job."""

    clean_pod_policy: CleanPods | None = None
    """Which pods are deleted at the end. None when the field is missing."""
    ttl_seconds_after_finished: Count | None = None
    """Seconds after its end until the job is deleted. No deletion when the field is
    missing."""
    active_deadline_seconds: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    """Seconds after its start until the job fails, if it has not ended. No limit when the field
    is missing."""
    backoff_limit: Count | None = None
    """Number of restarts, of all replicas together, with which the job counts as failed. No limit
    when the field is missing."""
    scheduling_policy: SchedulingPolicy | None = None
    suspend: bool | None = None
    """True: the pods are deleted until it is false again."""
    managed_by: str | None = None
    """Who runs the job. edgeai does not touch a job of kueue.x-k8s.io/multikueue."""
    restart_scope: RestartScope | None = None
    """Which pods start again when a replica has failed: it alone, or all pods of the job. Replica
    when the field is missing. The field is edgeai's own."""


class ReplicaStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The numbers of pods of one type."""

    active: Int32 = 0
    """Pods that run and are not being deleted. In a suspended job pods on edge nodes and on nodes
    without contact count until their nodes confirm their end."""
    succeeded: Int32 = 0
    """Pods that succeeded."""
    failed: Int32 = 0
    """Pods that failed."""
    selector: str = ""
    """Selects the pods of the type, for autoscalers."""


class JobCondition(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of .status.conditions. The list has the order of the changes, oldest first."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_update_time: Time | None = None
    last_transition_time: Time | None = None


class TrainingStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status fields of all training kinds. `finished`, `restarts`,
    `containerRestarts` and `jobRestarts` are edgeai's own.
    """

    conditions: Annotated[list[JobCondition], LIST_BY_TYPE] = []
    replica_statuses: dict[str, ReplicaStatus] = {}
    start_time: Time | None = None
    completion_time: Time | None = None
    last_reconcile_time: Time | None = None
    observed_generation: int = 0
    finished: list[str] = []
    """Replicas that have succeeded. They never run again, also when their pods are gone."""
    restarts: dict[str, int] = {}
    """Replica -> number of times that its pod was created again after a failure."""
    container_restarts: dict[str, int] = {}
    """Uid of a pod -> how often the node has started its containers again, for the backoff limit.
    "earlier" has the sum of the pods that are gone."""
    job_restarts: int = 0
    """Number of times that all pods were created again together."""
    workers: dict[str, dict[str, Any]] = {}
    """Replica -> the last report of the LocalController of its node, and only there. The edge side
    writes this field."""
    out_of_contact: dict[str, Time] = {}
    """Replica -> since when neither its kubelet nor the LocalController of its node has contact."""
