"""The checks of a training job's spec, as the webhooks of the Kubeflow operators make them.

Called by the kinds' `read`. Every function raises InvalidSpec and no other exception. Source:
kubeflow/training-operator 1.9, pkg/webhooks. docs/kinds has the table of all checks.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Final

import msgspec

from globalmanager.contract import InvalidSpec, Object
from globalmanager.rules import templates
from globalmanager.rules.specs import check_service_name, parse, shown
from globalmanager.rules.training.forms import ReplicaForm, RunPolicy


class _Port(msgspec.Struct, rename="camel"):
    container_port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    name: str | None = None


class _Trainer(msgspec.Struct):
    ports: list[_Port] | None = None


MANAGERS: Final = ("kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue")


def check_name(object_: Object, types: Mapping[str, int]) -> None:
    """Check that the job's name can begin the names of all Services. Args: types: type -> count"""
    suffixes = [f"-{type_.lower()}-{max(count - 1, 0)}" for type_, count in types.items()]
    check_service_name(object_["metadata"]["name"], max(suffixes, key=len, default=""))


def check_types(given: Mapping[str, ReplicaForm], allowed: Collection[str], path: str) -> None:
    """Check that the spec has replicas, and only of types that the kind knows."""
    if not given:
        raise InvalidSpec(path, "has no replica type", f"give one of {', '.join(allowed)}")
    for type_ in given:
        if type_ not in allowed:
            problem = f"does not know the replica type {shown(type_)}"
            raise InvalidSpec(path, problem, f"use {', '.join(allowed)}")


def check_templates(given: Mapping[str, ReplicaForm], container: str, path: str) -> None:
    """Check each pod template, and that it has the container that trains."""
    for type_, form in given.items():
        place = f"{path}.{type_}.template"
        templates.check(form.template, place)
        names = [one["name"] for one in form.template["spec"]["containers"]]
        if container not in names:
            problem = f"has no container named {container}"
            remedy = "name the container that trains so"
            raise InvalidSpec(f"{place}.spec.containers", problem, remedy)
        index = names.index(container)
        parse(
            form.template["spec"]["containers"][index],
            _Trainer,
            f"{place}.spec.containers[{index}]",
        )


def check_single(given: Mapping[str, ReplicaForm], types: Sequence[str], path: str) -> None:
    """Check that at most one of the leading types is given, with at most one replica."""
    leading = [type_ for type_ in types if type_ in given]
    if len(leading) > 1:
        problem = f"has {' and '.join(leading)}, which both lead the job"
        raise InvalidSpec(path, problem, "give one of them")
    for type_ in leading:
        count = given[type_].replicas
        if count is not None and count > 1:
            problem = f"is {count}, but only one replica can lead the job"
            raise InvalidSpec(f"{path}.{type_}.replicas", problem, "set it to 1")


def check_policy(policy: RunPolicy) -> None:
    """Check that a known controller manages the job."""
    if policy.managed_by not in (None, *MANAGERS):
        problem = f"{shown(str(policy.managed_by))} is no controller that manages such jobs"
        remedy = f"use {' or '.join(MANAGERS)}, or leave it out"
        raise InvalidSpec("spec.runPolicy.managedBy", problem, remedy)
