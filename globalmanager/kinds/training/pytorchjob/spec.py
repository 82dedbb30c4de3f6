"""Reads and checks the spec of a PyTorchJob."""

import re
from typing import Final

import msgspec

from edgeai.api.pytorchjob import MASTER, WORKER, ElasticPolicy, PyTorchJobSpec
from edgeai.api.resources import Object
from edgeai.api.specs import InvalidSpec, parse_spec, shown
from globalmanager.kinds.shared.constraints import Constraint, JobForm, check, check_form
from globalmanager.kinds.training import validation
from globalmanager.kinds.training.framework import KubeflowJob, replicas_of
from globalmanager.kinds.training.pytorchjob import elasticity
from globalmanager.kinds.training.pytorchjob.framework import PYTORCH

PATH = "spec.pytorchReplicaSpecs"
# At most six digits: planning raised on a number of thousands of digits.
_PROCESSES: Final = re.compile(r"^(auto|cpu|gpu|[1-9][0-9]{0,5})$")


def read(object_: Object) -> KubeflowJob:
    """The accepted spec, with all defaults. Raises: InvalidSpec"""
    check_form(object_, CONSTRAINTS)
    spec = parse_spec(object_, PyTorchJobSpec)
    # Jobs of an earlier release have the number without quotes, too.
    if spec.nproc_per_node is not None:
        spec = msgspec.structs.replace(spec, nproc_per_node=str(spec.nproc_per_node))
    forms = spec.pytorch_replica_specs
    check(JobForm(object_, spec, forms), CONSTRAINTS)
    replicas = replicas_of(PYTORCH, forms)
    job = KubeflowJob(framework=PYTORCH, replicas=replicas, policy=spec.run_policy, spec=spec)
    elastic, not_elastic = elasticity.elastic_of(object_, job), elasticity.fault(object_, job)
    return msgspec.structs.replace(
        job, elastic=elastic, not_elastic=not_elastic, start_fault=_start_fault(spec)
    )


# ---- what must hold -----------------------------------------------------------------------------


def _check_counts(job: JobForm) -> None:
    master, worker = job.replicas.get(MASTER), job.replicas.get(WORKER)
    # The webhook of the operator also refuses a missing number, against its own documentation.
    if master is not None and master.replicas not in (None, 1):
        problem = f"is {master.replicas}, but a job has one master"
        raise InvalidSpec(f"{PATH}.{MASTER}.replicas", problem, "set it to 1")
    if worker is not None and worker.replicas == 0:
        raise InvalidSpec(f"{PATH}.{WORKER}.replicas", "is 0", "set it to 1 or more")


def _check_workers(job: JobForm) -> None:
    if job.spec.elastic_policy is not None and WORKER not in job.replicas:
        problem = f"is missing, but spec.elasticPolicy needs {WORKER} replicas"
        raise InvalidSpec(f"{PATH}.{WORKER}", problem, "add it, or remove the elastic policy")


def _start_fault(spec: PyTorchJobSpec) -> InvalidSpec | None:
    elastic = spec.elastic_policy or ElasticPolicy()
    low, high = elastic.min_replicas, elastic.max_replicas
    if low is None or high is None or low <= high:
        return None
    problem = f"is {low}, above maxReplicas {high}"
    # Not raised: a job that runs goes on with an edit like this, with maxReplicas as both limits.
    return InvalidSpec("spec.elasticPolicy.minReplicas", problem, "lower it")


def _check_processes(job: JobForm) -> None:
    number = job.spec.nproc_per_node
    if isinstance(number, str) and not _PROCESSES.fullmatch(number):  # an int became a text
        problem = f"{shown(number)} is neither auto, cpu, gpu nor a number above 0"
        raise InvalidSpec("spec.nprocPerNode", problem, "correct it")
    elastic = job.spec.elastic_policy
    if elastic is not None and elastic.n_proc_per_node is not None and number is not None:
        # As the webhook of the operator, which calls the field of the policy deprecated.
        problem = "is given beside spec.nprocPerNode"
        raise InvalidSpec("spec.elasticPolicy.nProcPerNode", problem, "remove it")


CONSTRAINTS: Final = (
    *validation.replica_constraints(PATH, PYTORCH.types, PYTORCH.container),
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
        rule=(
            "a text: auto, cpu, gpu or a number from 1 to 999999;"
            " not beside elasticPolicy.nProcPerNode"
        ),
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
