"""ScaleOut and ScaleIn as the API holds them, and the readers of their specs.

The kinds scaleout and scalein check a scaler first, and the kind trainingjob executes it. Total but
for InvalidSpec. Source: AliyunContainerService/et-operator, pkg/api/v1alpha1/scaler_types.go.
"""

from typing import Any, Final

import msgspec

from edgeai.api.elastic import SCALE_INS, SCALE_OUTS
from edgeai.api.resources import Object, ResourceType
from edgeai.api.scalers import DEFAULT_TIMEOUT_S, ScaleInSpec, ScaleOutSpec, ScalerSpec
from edgeai.api.specs import InvalidSpec, check_object_name, parse_spec, shown
from edgeai.api.status import mapping


class Script(msgspec.Struct, frozen=True):
    """What the launcher runs. `text` is "" when there is no script."""

    text: str = ""
    timeout_s: int = DEFAULT_TIMEOUT_S
    env: tuple[tuple[str, str], ...] = ()


class Scaler(msgspec.Struct, frozen=True):
    """The accepted spec of a ScaleOut or ScaleIn."""

    job: str
    """The name of the TrainingJob."""
    count: int
    """The number of workers that come or go."""
    names: tuple[str, ...] = ()
    """The pods that go; empty when `count` says how many."""
    script: Script = Script()


def read_scale_out(object_: Object) -> Scaler:
    """Raises: InvalidSpec"""
    spec = parse_spec(object_, ScaleOutSpec)
    return Scaler(_job(spec), spec.to_add.count, script=_script(spec))


def read_scale_in(object_: Object) -> Scaler:
    """Raises: InvalidSpec"""
    spec = parse_spec(object_, ScaleInSpec)
    choice = spec.to_delete
    # As in the et-operator, podNames count where both are set.
    if choice.pod_names is not None:
        # A name that stands twice is one worker, also for the check of the limits.
        names = tuple(dict.fromkeys(choice.pod_names))
        return Scaler(_job(spec), len(names), names, _script(spec))
    # The et-operator crashes on a spec without toDelete.
    if choice.count is None:
        raise InvalidSpec("spec.toDelete", "has neither count nor podNames", "set one of the two")
    return Scaler(_job(spec), choice.count, script=_script(spec))


READERS: Final = {SCALE_OUTS: read_scale_out, SCALE_INS: read_scale_in}


def read(type_: ResourceType, object_: Object) -> Scaler:
    """The accepted spec of a scaler of this type. Raises: InvalidSpec"""
    return READERS[type_](object_)


def job_of(scaler: Object) -> str:
    """The name of the TrainingJob that a scaler names; "" for none. Total."""
    name: Any = mapping(mapping(scaler.get("spec")).get("selector")).get("name")
    return name if isinstance(name, str) else ""


def _job(spec: ScalerSpec) -> str:
    check_object_name(spec.selector.name, "spec.selector.name", "TrainingJob")
    return spec.selector.name


def _script(spec: ScalerSpec) -> Script:
    # The text becomes one line of a shell program. A second line would run without the timeout.
    if "\n" in spec.script or "\0" in spec.script:
        problem = f"{shown(spec.script)} is more than one line"
        remedy = "put the script into the launcher's image, and give its path"
        raise InvalidSpec("spec.script", problem, remedy)
    env = tuple((variable.name, variable.value) for variable in spec.env)
    return Script(spec.script.strip(), spec.timeout or DEFAULT_TIMEOUT_S, env)
