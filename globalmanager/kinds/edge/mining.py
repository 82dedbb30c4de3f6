"""The hard-example mining algorithms that workers know: the check of their parameters, and the
variables that tell a worker.

Names and defaults come from Sedna's library. The worker also gets a parameter that the named
algorithm does not know, because the user may have written a class of this name. The condition
Accepted names such a parameter.
"""

import json
import math
from collections.abc import Mapping
from typing import Final

import msgspec

from edgeai.api.jointinferenceservice import PARAMETERS, Mining, ParameterForm
from edgeai.api.specs import InvalidSpec, shown
from globalmanager.kinds.shared.pods import EnvVar, literal

_EXAMPLES: Final[Mapping[ParameterForm, str]] = {"number": "0.5", "whole number": "7"}


def check(mining: Mining | None, path: str) -> None:
    """Raises: InvalidSpec"""
    if mining is None:
        return
    forms = PARAMETERS.get(mining.name)
    if forms is None:
        remedy = f"use one of {', '.join(sorted(PARAMETERS))}"
        raise InvalidSpec(f"{path}.name", f"{shown(mining.name)} is no known algorithm", remedy)
    for index, parameter in enumerate(mining.parameters):
        form = forms.get(parameter.key, "text")
        if not _has_form(parameter.value, form):
            where = f"{path}.parameters[{index}].value"
            problem = f"{shown(parameter.value)} is no {form}, as {parameter.key} must be"
            raise InvalidSpec(where, problem, f'write it like "{_EXAMPLES[form]}"')


def _has_form(text: str, form: ParameterForm) -> bool:
    if form == "text":
        return True
    try:
        if form == "whole number":
            int(text)
        # float() reads nan, and no number is below nan: no sample would ever be hard.
        return math.isfinite(float(text))
    except (ValueError, OverflowError):
        return False


def unknown_parameters(mining: Mining | None) -> str:
    """A sentence about the parameters that the algorithm does not know. "" when it knows all."""
    if mining is None:
        return ""
    forms = PARAMETERS[mining.name]
    unknown = [shown(item.key) for item in mining.parameters if item.key not in forms]
    if not unknown:
        return ""
    names = ", ".join(sorted(forms)) or "none"
    return f"{mining.name} does not know {', '.join(unknown)} (it knows: {names}); passed on as is"


def environment(mining: Mining | None) -> list[EnvVar]:
    """Variables of the algorithm. Empty when the worker's own code decides."""
    if mining is None:
        return []
    # Sedna's library reads a JSON list of keys and values.
    parameters = json.dumps(msgspec.to_builtins(mining.parameters))
    return [literal("HEM_NAME", mining.name), literal("HEM_PARAMETERS", parameters)]
