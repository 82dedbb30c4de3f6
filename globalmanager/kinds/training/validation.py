"""The constraints that all training kinds share. The webhooks of the Kubeflow operators have them.

The `spec` module of each kind adds its own rows. The tables in docs/kinds are made from these rows.
Source: kubeflow/training-operator 1.9, pkg/webhooks.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from edgeai.api import templates
from edgeai.api.specs import InvalidSpec, check_service_name, parse, shown
from edgeai.api.training import MAX_REPLICAS, CleanPods, RestartPolicy, RestartScope
from globalmanager.kinds.shared.constraints import ANY, Constraint, JobForm, choice, number, one_of

# The two values that the webhook of the operator accepts. The second is Kueue's MultiKueue.
MANAGERS: Final = ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")
_POLICY: Final = "spec.runPolicy"
# Planning raised on a deadline beyond int32.
_MAX: Final = 2**31 - 1


# Without these two structs, a port without a number made planning raise.
class _Port(msgspec.Struct, rename="camel"):
    container_port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    name: str | None = None


class _Trainer(msgspec.Struct):
    ports: list[_Port] | None = None


def replica_constraints(path: str, types: Sequence[str], container: str) -> tuple[Constraint, ...]:
    """Rows about names, types, templates. Args: path: as spec.tfReplicaSpecs; container: trains"""
    return (
        Constraint(
            field="metadata.name",
            rule="a DNS label, short enough to begin the names of all Services",
            check=_check_name,
        ),
        Constraint(
            field=path,
            rule=f"a map with at least one of {', '.join(types)}, and nothing else",
            schema={"minProperties": 1, "maxProperties": len(types)},
            # A type that the framework does not know would silently get no pods.
            check=lambda job: _check_types(job, types, path),
        ),
        # 0 is a job that is scaled down: it waits, and the operator ends it with success.
        number(f"{path}.{ANY}.replicas", 0, MAX_REPLICAS),
        choice(f"{path}.{ANY}.restartPolicy", RestartPolicy),
        Constraint(
            field=f"{path}.{ANY}.template",
            rule=(
                f"a pod template with a container named {container}, whose ports have numbers; "
                "every container has an image"
            ),
            check=lambda job: _check_templates(job, container, path),
        ),
    )


OF_RUN_POLICY: Final = (
    choice(f"{_POLICY}.cleanPodPolicy", CleanPods),
    number(f"{_POLICY}.ttlSecondsAfterFinished", 0, _MAX),
    number(f"{_POLICY}.activeDeadlineSeconds", 1, _MAX),
    number(f"{_POLICY}.backoffLimit", 0, _MAX),
    choice(f"{_POLICY}.restartScope", RestartScope),
    Constraint(
        field=f"{_POLICY}.managedBy",
        rule=f"{one_of(MANAGERS)}; a job of the latter is not touched",
        schema={"enum": sorted(MANAGERS)},
    ),
    Constraint(
        field=f"{_POLICY}.managedBy",
        # Nobody else would look after pods that exist. The webhook of the operator compares the new
        # object with itself, so it lets this edit pass.
        rule="the same for the whole life of the job; a job that has pods keeps its manager",
        cel=(
            "(has(self.runPolicy) && has(self.runPolicy.managedBy) ? self.runPolicy.managedBy : '')"
            " == (has(oldSelf.runPolicy) && has(oldSelf.runPolicy.managedBy)"
            " ? oldSelf.runPolicy.managedBy : '')"
        ),
        cel_field="spec",
    ),
    number(f"{_POLICY}.schedulingPolicy.minAvailable", 0, _MAX),
    number(f"{_POLICY}.schedulingPolicy.scheduleTimeoutSeconds", 0, _MAX),
    Constraint(
        field=f"{_POLICY}.schedulingPolicy.queue",
        rule="the same for the whole life of the job",
        # As upstream. Only the API server knows the spec before an edit.
        cel="self == oldSelf",
        is_checked=False,
    ),
)


def _check_name(job: JobForm) -> None:
    # The longest name decides, or the API server would refuse only the last Services of a job.
    suffixes = [
        f"-{type_.lower()}-{max((1 if form.replicas is None else form.replicas) - 1, 0)}"
        for type_, form in job.replicas.items()
    ]
    check_service_name(job.object["metadata"]["name"], max(suffixes, key=len, default=""))


def _check_types(job: JobForm, types: Sequence[str], path: str) -> None:
    for type_ in job.replicas:
        if type_ not in types:
            problem = f"does not know the replica type {shown(type_)}"
            raise InvalidSpec(path, problem, f"use {', '.join(types)}")


def _check_templates(job: JobForm, container: str, path: str) -> None:
    for type_, form in job.replicas.items():
        place = f"{path}.{type_}.template"
        templates.check(form.template, place)
        containers = form.template["spec"]["containers"]
        names = [one["name"] for one in containers]
        # As the webhook of the operator: this container has the port, and its exit code counts.
        if container not in names:
            problem = f"has no container named {container}"
            remedy = "name the container that trains so"
            raise InvalidSpec(f"{place}.spec.containers", problem, remedy)
        index = names.index(container)
        parse(containers[index], _Trainer, f"{place}.spec.containers[{index}]")
