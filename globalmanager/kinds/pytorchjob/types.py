"""PyTorchJob as the API holds it, and the reader of its spec.

Source of fields and defaults: kubeflow/training-operator 1.9,
pkg/apis/kubeflow.org/v1/pytorch_types.go.
"""

import enum
import re
from typing import Annotated, Any, Final

import msgspec

from edgeai.api.resources import Object
from globalmanager.contract import InvalidSpec
from globalmanager.kinds.pytorchjob import elasticity
from globalmanager.kinds.pytorchjob.framework import PYTORCH
from globalmanager.kinds.pytorchjob.replica_types import MASTER, WORKER
from globalmanager.rules.specs import NonEmpty, parse_spec, shown
from globalmanager.rules.training import defaults, validation
from globalmanager.rules.training.constraints import Constraint, Given, check, check_form
from globalmanager.rules.training.forms import (
    Count,
    ReplicaForm,
    ReplicaStatus,
    RunPolicy,
    TrainingStatus,
)
from globalmanager.rules.training.framework import KubeflowJob

PATH = "spec.pytorchReplicaSpecs"
_PROCESSES: Final = re.compile(r"^(auto|cpu|gpu|[1-9][0-9]{0,5})$")
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
    """The smallest number of workers."""
    max_replicas: Count | None = None
    """The largest number of workers."""
    rdzv_backend: RdzvBackend | None = None
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
    n_proc_per_node: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Deprecated. Use spec.nprocPerNode."""
    max_restarts: Count | None = None
    """For PET_MAX_RESTARTS of torchrun: how often it starts the processes again."""
    metrics: list[dict[str, Any]] = []
    """Metrics of a HorizontalPodAutoscaler that changes the number of workers."""


class PyTorchJobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    run_policy: RunPolicy = RunPolicy()
    elastic_policy: ElasticPolicy | None = None
    pytorch_replica_specs: dict[str, ReplicaForm]
    """Master, Worker or both."""
    nproc_per_node: str | int | None = None
    """Number of processes in each pod: auto, cpu, gpu, or a number, also as a text."""


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


def read(object_: Object) -> KubeflowJob:
    """The accepted spec, with all defaults. Raises: InvalidSpec"""
    check_form(object_, CONSTRAINTS)
    spec = parse_spec(object_, PyTorchJobSpec)
    if spec.nproc_per_node is not None:
        spec = msgspec.structs.replace(spec, nproc_per_node=str(spec.nproc_per_node))
    given = spec.pytorch_replica_specs
    check(Given(object_, spec, given), CONSTRAINTS)
    replicas = defaults.replicas_of(PYTORCH, given)
    job = KubeflowJob(framework=PYTORCH, replicas=replicas, policy=spec.run_policy, spec=spec)
    elastic, not_elastic = elasticity.of(object_, job), elasticity.fault(object_, job)
    return msgspec.structs.replace(
        job, elastic=elastic, not_elastic=not_elastic, start_fault=_start_fault(spec)
    )


# ---- what must hold -----------------------------------------------------------------------------


def _check_counts(given: Given) -> None:
    master, worker = given.replicas.get(MASTER), given.replicas.get(WORKER)
    if master is not None and master.replicas not in (None, 1):
        problem = f"is {master.replicas}, but a job has one master"
        raise InvalidSpec(f"{PATH}.{MASTER}.replicas", problem, "set it to 1")
    if worker is not None and worker.replicas == 0:
        raise InvalidSpec(f"{PATH}.{WORKER}.replicas", "is 0", "set it to 1 or more")


def _check_workers(given: Given) -> None:
    if given.spec.elastic_policy is not None and WORKER not in given.replicas:
        problem = f"is missing, but spec.elasticPolicy needs {WORKER} replicas"
        raise InvalidSpec(f"{PATH}.{WORKER}", problem, "add it, or remove the elastic policy")


def _start_fault(spec: PyTorchJobSpec) -> InvalidSpec | None:
    elastic = spec.elastic_policy or ElasticPolicy()
    low, high = elastic.min_replicas, elastic.max_replicas
    if low is None or high is None or low <= high:
        return None
    problem = f"is {low}, above maxReplicas {high}"
    return InvalidSpec("spec.elasticPolicy.minReplicas", problem, "lower it")


def _check_processes(given: Given) -> None:
    number = given.spec.nproc_per_node
    if isinstance(number, str) and not _PROCESSES.fullmatch(number):  # an int became a text
        problem = f"{shown(number)} is neither auto, cpu, gpu nor a number above 0"
        raise InvalidSpec("spec.nprocPerNode", problem, "correct it")
    elastic = given.spec.elastic_policy
    if elastic is not None and elastic.n_proc_per_node is not None and number is not None:
        problem = "is given beside spec.nprocPerNode"
        raise InvalidSpec("spec.elasticPolicy.nProcPerNode", problem, "remove it")


CONSTRAINTS: Final = (
    *validation.of_replicas(PATH, PYTORCH.types, PYTORCH.container),
    Constraint(
        field=PATH,
        rule="a map in which Master has 1 replica and Worker at least 1",
        cel=(
            "self.size() == ('Master' in self ? 1 : 0) + ('Worker' in self ? 1 : 0) && "
            "(!('Master' in self) || !has(self['Master'].replicas)"
            " || self['Master'].replicas == 1) && "
            "(!('Worker' in self) || !has(self['Worker'].replicas)"
            " || self['Worker'].replicas > 0)"
        ),
        check=_check_counts,
    ),
    Constraint(
        field="spec.nprocPerNode",
        rule="auto, cpu, gpu or a number from 1 to 999999; not beside elasticPolicy.nProcPerNode",
        schema={"pattern": _PROCESSES.pattern},
        cel=(
            "!has(self.nprocPerNode) || !has(self.elasticPolicy)"
            " || !has(self.elasticPolicy.nProcPerNode)"
        ),
        cel_field="spec",
        check=_check_processes,
    ),
    Constraint(
        field="spec.elasticPolicy",
        rule="left out where the job has no Worker",
        cel="!has(self.elasticPolicy) || 'Worker' in self.pytorchReplicaSpecs",
        cel_field="spec",
        check=_check_workers,
    ),
    Constraint(
        field="spec.elasticPolicy.minReplicas",
        rule="at most maxReplicas",
        cel="!has(self.minReplicas) || !has(self.maxReplicas)"
        " || self.minReplicas <= self.maxReplicas",
        cel_field="spec.elasticPolicy",
    ),
    *validation.OF_RUN_POLICY,
)
"""What must hold for the spec of a PyTorchJob."""
