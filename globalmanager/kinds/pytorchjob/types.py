"""PyTorchJob as the API holds it, and the reader of its spec.

Source of fields and defaults: kubeflow/training-operator 1.9,
pkg/apis/kubeflow.org/v1/pytorch_types.go.
"""

import enum
import re
from typing import Annotated, Any, Final

import msgspec

from globalmanager.contract import InvalidSpec, Object
from globalmanager.kinds.pytorchjob.framework import MASTER, PYTORCH, WORKER
from globalmanager.rules.specs import NonEmpty, parse_spec, shown
from globalmanager.rules.training import defaults, validation
from globalmanager.rules.training.forms import (
    Count,
    ReplicaForm,
    ReplicaStatus,
    RunPolicy,
    TrainingStatus,
)
from globalmanager.rules.training.framework import TrainingJob

PATH = "spec.pytorchReplicaSpecs"
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,5}\Z")
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class RdzvBackend(enum.StrEnum):
    """The store in which the processes of elastic training find each other."""

    C10D = "c10d"
    ETCD = "etcd"
    ETCD_V2 = "etcd-v2"


class RdzvConf(msgspec.Struct, frozen=True):
    """One setting of the rendezvous backend."""

    key: NonEmpty
    value: str = ""


class ElasticPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Training by torchrun with a changing number of workers."""

    min_replicas: Count | None = None
    max_replicas: Count | None = None
    rdzv_backend: RdzvBackend | None = None
    rdzv_port: Port | None = None
    rdzv_host: str | None = None
    rdzv_id: str | None = None
    rdzv_conf: list[RdzvConf] = []
    """Options of the rendezvous backend."""
    standalone: bool | None = None
    n_proc_per_node: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Deprecated. Use spec.nprocPerNode."""
    max_restarts: Count | None = None
    metrics: list[dict[str, Any]] = []
    """Metrics of a HorizontalPodAutoscaler that changes the number of workers."""


class PyTorchJobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    run_policy: RunPolicy = RunPolicy()
    elastic_policy: ElasticPolicy | None = None
    pytorch_replica_specs: dict[str, ReplicaForm]
    """Master, Worker or both."""
    nproc_per_node: str | None = None
    """Number of processes in each pod: auto, cpu, gpu, or a number."""


class PyTorchJobStatus(TrainingStatus, frozen=True, kw_only=True, rename="camel"):
    replica_statuses: dict[str, ReplicaStatus] = {}


def read(object_: Object) -> TrainingJob:
    """The accepted spec, with all defaults. Raises: InvalidSpec"""
    spec = parse_spec(object_, PyTorchJobSpec)
    given = spec.pytorch_replica_specs
    validation.check_types(given, PYTORCH.types, PATH)
    validation.check_templates(given, PYTORCH.container, PATH)
    _check_counts(given)
    _check_elastic(spec)
    validation.check_policy(spec.run_policy)
    replicas = defaults.replicas_of(PYTORCH, given)
    validation.check_name(object_, {each.type: each.count for each in replicas})
    return TrainingJob(framework=PYTORCH, replicas=replicas, policy=spec.run_policy, spec=spec)


def _check_counts(given: dict[str, ReplicaForm]) -> None:
    master, worker = given.get(MASTER), given.get(WORKER)
    if master is not None and master.replicas not in (None, 1):
        problem = f"is {master.replicas}, but a job has one master"
        raise InvalidSpec(f"{PATH}.{MASTER}.replicas", problem, "set it to 1")
    if worker is not None and worker.replicas == 0:
        raise InvalidSpec(f"{PATH}.{WORKER}.replicas", "is 0", "set it to 1 or more")


def _check_elastic(spec: PyTorchJobSpec) -> None:
    _check_processes(spec)
    elastic = spec.elastic_policy
    if elastic is None:
        return
    if WORKER not in spec.pytorch_replica_specs:
        problem = f"is missing, but spec.elasticPolicy needs {WORKER} replicas"
        raise InvalidSpec(f"{PATH}.{WORKER}", problem, "add it, or remove the elastic policy")
    low, high = elastic.min_replicas, elastic.max_replicas
    if low is not None and high is not None and low > high:
        problem = f"is {low}, above maxReplicas {high}"
        raise InvalidSpec("spec.elasticPolicy.minReplicas", problem, "lower it")
    if elastic.n_proc_per_node is not None and spec.nproc_per_node is not None:
        problem = "is given beside spec.nprocPerNode"
        raise InvalidSpec("spec.elasticPolicy.nProcPerNode", problem, "remove it")


def _check_processes(spec: PyTorchJobSpec) -> None:
    text = spec.nproc_per_node
    if text is None or text in ("auto", "cpu", "gpu") or _NUMBER.match(text):
        return
    problem = f"{shown(text)} is neither auto, cpu, gpu nor a number above 0"
    raise InvalidSpec("spec.nprocPerNode", problem, "correct it")
