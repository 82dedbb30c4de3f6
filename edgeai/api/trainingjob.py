"""TrainingJob as the API holds it.

Source of fields and defaults: AliyunContainerService/et-operator, pkg/api/v1alpha1.
"""

import enum
from typing import Annotated, Final

import msgspec

from edgeai.api.definitions import Definition, Scale, Suspension
from edgeai.api.elastic import TRAINING_JOBS
from edgeai.api.status import LIST_BY_TYPE, Int32, Time
from edgeai.api.templates import Template
from edgeai.api.training import (
    MAX_REPLICAS,
    CleanPods,
    Count,
    JobCondition,
    ReplicaStatus,
    RestartPolicy,
)


class AttachMode(enum.StrEnum):
    """How the launcher starts processes on the workers."""

    SSH = "ssh"
    KUBEXEC = "kubexec"
    """By the `exec` of the Kubernetes API."""


class JobRestartPolicy(enum.StrEnum):
    """Whether a launcher that has failed runs again."""

    NEVER = "Never"
    ON_FAILURE = "OnFailure"


class LauncherForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    replicas: Int32 | None = None
    """Always one launcher. 1 when the field is missing."""
    template: Template
    restart_policy: RestartPolicy | None = None
    """Has no effect. Use spec.restartPolicy."""


class WorkerForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    replicas: Annotated[int, msgspec.Meta(ge=0, le=MAX_REPLICAS)] | None = None
    """The number of workers with which the job starts. 1 when the field is missing."""
    min_replicas: Count | None = None
    """The launcher starts when this number of workers runs. All workers when the field
    is missing."""
    max_replicas: Count | None = None
    """A ScaleOut cannot exceed this number. No limit when the field is missing."""
    template: Template
    restart_policy: RestartPolicy | None = None
    """Which workers another worker with a new index replaces. ExitCode: those that are
    evicted, preempted, deleted, on a lost node, or ended by a signal. ExitCode when the field is
    missing."""


class ETReplicaSpecs(msgspec.Struct, frozen=True, kw_only=True):
    launcher: LauncherForm
    """The pod that starts processes on the workers."""
    worker: WorkerForm
    """The pods on which the processes run."""


class ElasticForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The number of workers follows the room in the cluster, from minReplicas to maxReplicas."""

    max_queued: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    """Number of workers that may wait for room at the same time. 1 when the field is missing."""


class ElasticStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The workers of an elastic job."""

    ready: int = 0
    """Workers that run."""
    waiting: int = 0
    """Workers that wait for room, or do not start for another reason."""
    limit: int | None = None
    """The largest number of workers, as `kubectl scale` has set it. maxReplicas when missing."""
    reason: str = ""
    """Why the first waiting worker does not start, in one word: "Unschedulable"."""
    message: str = ""
    """The same in the words of the scheduler or of the node."""
    last_scale_time: Time | None = None
    """When the job last added a waiting worker, or took one back."""


class TrainingJobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Training by a launcher on workers, whose number may change meanwhile."""

    et_replica_specs: ETReplicaSpecs = msgspec.field(name="etReplicaSpecs")
    """The launcher and the workers."""
    elastic: ElasticForm | None = None
    """edgeai's own field: the number of workers follows the room in the cluster, from minReplicas
    to maxReplicas. Only ScaleOut, ScaleIn and `kubectl scale` change it when the field is
    missing."""
    launcher_attach_mode: AttachMode | None = None
    """How the launcher starts processes on the workers. ssh when the field is missing."""
    slots_per_worker: Int32 | None = None
    """Processes on each worker. The worker's limit of nvidia.com/gpu, or 1, when the field is
    missing."""
    clean_pod_policy: CleanPods | None = None
    """Which workers are deleted at the end. Running when the field is missing."""
    restart_policy: JobRestartPolicy | None = None
    """Whether a launcher that has failed runs again. Never when the field is missing."""
    backoff_limit: Count | None = None
    """How often the launcher is started again. 6 when the field is missing."""
    suspend: bool | None = None
    """edgeai's own field. True: the objects of the job are deleted until it is false again."""


class TrainingJobStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """edgeai's own are `nextWorkerIndex`, `replacedWorkers`, `observedReplicas`, `elastic` and
    `observedGeneration`.
    """

    phase: str = ""
    conditions: Annotated[list[JobCondition], LIST_BY_TYPE] = []
    replica_statuses: dict[str, ReplicaStatus] = {}
    start_time: Time | None = None
    completion_time: Time | None = None
    last_reconcile_time: Time | None = None
    observed_generation: int = 0
    restart_count: Int32 = 0
    """How often the launcher was started again."""
    current_scaler: str = ""
    """The scaler that is being executed: "ScaleIn:<namespace>/<name>"."""
    target_workers: list[str] = []
    """The pods of the workers that the job wants, in the order of their index."""
    current_workers: list[str] = []
    """The workers in the host list of the launcher."""
    next_worker_index: int = 0
    """The index of the next new worker. No index is used twice, because Horovod never uses a host
    again on which a process has failed."""
    replaced_workers: int = 0
    """How many workers were lost or have failed, and were replaced."""
    observed_replicas: int = 0
    """The number of workers in the spec with which the plan has dealt. For a later edit the plan
    creates a scaler."""
    elastic: ElasticStatus | None = None
    """Only of a job with spec.elastic."""


# The annotation of the et-operator, whose spec has no field for it.
SUSPENDED: Final = "job-supervisor.kube-ai.io/job-suspended"
"""Annotation of a job: "true" suspends the job, as spec.suspend does."""
DEFINITION: Final = Definition(
    types=(TRAINING_JOBS,),
    spec=TrainingJobSpec,
    status=TrainingJobStatus,
    suspensions=(
        Suspension(("spec", "suspend")),
        Suspension(("metadata", "annotations", SUSPENDED), on="true", off=None),
    ),
    scale=Scale(
        ".spec.etReplicaSpecs.worker.replicas",
        ".status.replicaStatuses.Worker.active",
        ".status.replicaStatuses.Worker.selector",
    ),
)
