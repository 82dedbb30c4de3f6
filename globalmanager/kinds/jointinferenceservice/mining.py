"""The hard-example mining algorithms that workers know, and the check of their parameters.

Names and defaults are those of Sedna's library. A parameter that an algorithm does not know is
passed on all the same, since its class may be the user's; the Accepted condition says so.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from globalmanager.contract import InvalidSpec
from globalmanager.rules.specs import NonEmpty, shown
from globalmanager.rules.worker_form import Parameter

NUMBERS: Final[Mapping[str, frozenset[str]]] = {
    "BertRouter": frozenset({"threshold"}),
    "CloudOnly": frozenset(),
    "CrossEntropy": frozenset({"threshold_cross_entropy"}),
    "EdgeOnly": frozenset(),
    "IBT": frozenset({"threshold_box", "threshold_img"}),
    "Random": frozenset({"random_ratio"}),
    "Threshold": frozenset({"threshold"}),
}
"""Algorithm -> those of its parameters that are numbers."""

_TEXTS: Final[Mapping[str, frozenset[str]]] = {"BertRouter": frozenset({"model"})}


class Mining(msgspec.Struct, frozen=True):
    """Which samples are hard."""

    name: Annotated[NonEmpty, msgspec.Meta(extra_json_schema={"enum": sorted(NUMBERS)})]
    parameters: list[Parameter] = []


def check(
    path: str, *, hard_example_mining: Mining | None, hard_example_algorithm: Mining | None
) -> None:
    """Raises: InvalidSpec; `path` is that of the worker"""
    if hard_example_mining and hard_example_algorithm:
        problem = "is given beside hardExampleMining, which means the same"
        raise InvalidSpec(f"{path}.hardExampleAlgorithm", problem, "remove one of them")
    if hard_example_mining:
        _check(hard_example_mining, f"{path}.hardExampleMining")
    if hard_example_algorithm:
        _check(hard_example_algorithm, f"{path}.hardExampleAlgorithm")


def _check(mining: Mining, path: str) -> None:
    if mining.name not in NUMBERS:
        remedy = f"use one of {', '.join(sorted(NUMBERS))}"
        raise InvalidSpec(f"{path}.name", f"{shown(mining.name)} is no known algorithm", remedy)
    for index, parameter in enumerate(mining.parameters):
        if parameter.key in NUMBERS[mining.name] and not _is_number(parameter.value):
            where = f"{path}.parameters[{index}].value"
            problem = f"{shown(parameter.value)} is no number, as {parameter.key} must be"
            raise InvalidSpec(where, problem, 'write it like "0.5"')


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def unknown_parameters(mining: Mining | None) -> str:
    """A sentence on the parameters that the algorithm does not know; "" when it knows all."""
    if mining is None:
        return ""
    known = NUMBERS[mining.name] | _TEXTS.get(mining.name, frozenset())
    unknown = [shown(item.key) for item in mining.parameters if item.key not in known]
    if not unknown:
        return ""
    names = ", ".join(sorted(known)) or "none"
    return f"{mining.name} does not know {', '.join(unknown)} (it knows: {names}); passed on as is"
