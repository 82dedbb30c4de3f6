"""The parts of an installation, and the API groups that it serves."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from edgeai.api.objects import label_of
from edgeai.api.resources import Object
from globalmanager.kinds import KINDS

NAME_LABEL: Final = "app.kubernetes.io/name"
MANAGER: Final = "globalmanager"
CONTROLLER: Final = "localcontroller"


def part_of(objects: Iterable[Object], name: str) -> list[Object]:
    """The objects whose label says that they belong to this part of edgeai."""
    return [object_ for object_ in objects if label_of(object_, NAME_LABEL) == name]


def installed_groups(definitions: Iterable[Object]) -> tuple[str, ...]:
    """The API groups of edgeai of which at least one definition is installed."""
    names = {definition["metadata"]["name"] for definition in definitions}
    types = [type_ for kind in KINDS for type_ in kind.definition.resources]
    return tuple(dict.fromkeys(type_.group for type_ in types if str(type_) in names))


def served_groups(deployments: Iterable[Object]) -> frozenset[str]:
    """The API groups that the GlobalManager is told to serve; all where nothing is said. The
    operator of Kubeflow may own the definitions of another group.
    """
    for deployment in part_of(deployments, MANAGER):
        for container in deployment["spec"]["template"]["spec"].get("containers") or ():
            values = [
                variable.get("value")
                for variable in container.get("env") or ()
                if variable.get("name") == "EDGEAI_GROUPS"
            ]
            words = [*(container.get("command") or ()), *(container.get("args") or ())]
            for word, following in pairwise([*words, ""]):
                flag, _, value = word.partition("=")
                values += [value or following] if flag == "--groups" else []
            if values:
                return frozenset(str(values[-1]).split(","))
    return frozenset(type_.group for kind in KINDS for type_ in kind.definition.resources)
