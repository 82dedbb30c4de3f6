"""PyTorchJob as the API holds it.

Source of fields and defaults: kubeflow/training-operator 1.9,
pkg/apis/kubeflow.org/v1/pytorch_types.go.
"""

import enum
from typing import Annotated, Any, Final

import msgspec

from edgeai.api.definitions import Definition, Scale
from edgeai.api.resources import ResourceType
from edgeai.api.schemas import kubernetes
from edgeai.api.specs import NonEmpty
from edgeai.api.training import (
    SUSPENSIONS,
    Count,
    ReplicaForm,
    ReplicaStatus,
    RunPolicy,
    TrainingStatus,
)

MASTER: Final = "Master"
WORKER: Final = "Worker"

Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class RdzvBackend(enum.StrEnum):
    """The store in which the processes of elastic training find each other."""

    C10D = "c10d"
    ETCD = "etcd"
    ETCD_V2 = "etcd-v2"


class RdzvConf(msgspec.Struct, frozen=True):
    """One setting of the rendezvous backend."""

    key: NonEmpty
    """Its name."""
    value: str = ""
    """Its value."""


class ElasticPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Training by torchrun with a changing number of workers."""

    min_replicas: Count | None = None
    """The smallest number of workers. maxReplicas, or Worker.replicas without it, when the field is
    missing."""
    max_replicas: Count | None = None
    """The largest number of workers. minReplicas, or Worker.replicas without it, when the field is
    missing."""
    rdzv_backend: RdzvBackend | None = None
    """The store in which the processes find each other. c10d when the field is missing."""
    rdzv_port: Port | None = None
    """The port there. The port of the worker's container when the field is missing."""
    rdzv_host: str | None = None
    """Where the workers find each other. The first worker when the field is missing."""
    rdzv_id: str | None = None
    """For PET_RDZV_ID of torchrun."""
    rdzv_conf: list[RdzvConf] = []
    """Options of the rendezvous backend."""
    standalone: bool | None = None
    """For PET_STANDALONE of torchrun."""
    n_proc_per_node: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    """Deprecated. Use spec.nprocPerNode."""
    max_restarts: Count | None = None
    """For PET_MAX_RESTARTS of torchrun: how often it starts the processes again."""
    metrics: list[Annotated[dict[str, Any], kubernetes("MetricSpec")]] = []
    """Metrics of a HorizontalPodAutoscaler that changes the number of workers."""


class PyTorchJobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Training with PyTorch in several pods."""

    run_policy: RunPolicy = RunPolicy()
    elastic_policy: ElasticPolicy | None = None
    pytorch_replica_specs: dict[str, ReplicaForm]
    """Master, Worker or both."""
    nproc_per_node: Annotated[
        str | int | None, msgspec.Meta(extra_json_schema={"type": "string"})
    ] = None
    """Processes in each pod: auto, cpu, gpu, or a number as a text. auto when the field is
    missing."""


class ElasticStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The workers of a job with the annotation edgeai.io/elastic."""

    ready: int = 0
    """Workers that run."""
    waiting: int = 0
    """Workers that wait for room, or do not start for another reason."""
    reason: str = ""
    """Why the first waiting worker does not start, in one word: "Unschedulable". Or NotElastic: the
    annotation has no effect."""
    message: str = ""
    """The same in the words of the scheduler or of the node."""


class PyTorchJobStatus(TrainingStatus, frozen=True, kw_only=True, rename="camel"):
    replica_statuses: dict[str, ReplicaStatus] = {}
    elastic: ElasticStatus | None = None
    """edgeai's own field."""


DEFINITION: Final = Definition(
    types=(ResourceType("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"),),
    spec=PyTorchJobSpec,
    status=PyTorchJobStatus,
    suspensions=SUSPENSIONS,
    # As upstream, kubectl and autoscalers scale the workers alone, because a job has one master.
    scale=Scale(
        ".spec.pytorchReplicaSpecs.Worker.replicas",
        ".status.replicaStatuses.Worker.active",
        ".status.replicaStatuses.Worker.selector",
    ),
)
