"""ScaleOut and ScaleIn as the API holds them, and the readers of their specs.

The kinds scaleout and scalein check a scaler first, and the kind trainingjob executes it. Total but
for InvalidSpec. Source of the fields: AliyunContainerService/et-operator,
pkg/api/v1alpha1/scaler_types.go.
"""

from typing import Annotated, Any, Final

import msgspec

from edgeai.api.resources import Object, ResourceType
from globalmanager.contract import InvalidSpec
from globalmanager.rules.elastic.words import SCALE_INS, SCALE_OUTS
from globalmanager.rules.specs import NonEmpty, check_object_name, parse_spec, shown
from globalmanager.rules.status import mapping

DEFAULT_TIMEOUT_S: Final = 60
MAX_TIMEOUT_S: Final = 86400
MAX_COUNT: Final = 1000
MAX_SCRIPT_CHARS: Final = 16 * 1024
MAX_VARIABLES: Final = 100
_MAX_VALUE_CHARS: Final = 4096

Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]
PodNames = Annotated[list[NonEmpty], msgspec.Meta(min_length=1, max_length=MAX_COUNT)]


class Selector(msgspec.Struct, frozen=True):
    name: NonEmpty
    """A TrainingJob of the same namespace."""


class Variable(msgspec.Struct, frozen=True):
    """One environment variable of the script."""

    name: Annotated[str, msgspec.Meta(pattern="^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)]
    """Its name."""
    value: Annotated[str, msgspec.Meta(max_length=_MAX_VALUE_CHARS)] = ""
    """Its value."""


class ToAdd(msgspec.Struct, frozen=True):
    count: Count
    """The number of new workers."""


class ToDelete(msgspec.Struct, frozen=True, rename="camel"):
    """Give one of the two fields. `podNames` has priority."""

    count: Count | None = None
    """The number of workers that go, those with the highest indices."""
    pod_names: (
        Annotated[list[NonEmpty], msgspec.Meta(min_length=1, max_length=MAX_COUNT)] | None
    ) = None
    """The pods of the workers that go."""


class _ScalerSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    selector: Selector
    """The job that the scaler changes."""
    script: Annotated[str, msgspec.Meta(max_length=MAX_SCRIPT_CHARS)] = ""
    """The path of a script in the launcher, and arguments. The launcher runs `sh <script>
    <pod>:<slots>,…`. After a restart of the GlobalManager the script may run again."""
    timeout: Annotated[int, msgspec.Meta(ge=1, le=MAX_TIMEOUT_S)] | None = None
    """Seconds that new workers have to start, that the script has to end, that workers which go
    have to become idle, and that their pods have to end. 60 when the field is missing."""
    env: Annotated[list[Variable], msgspec.Meta(max_length=MAX_VARIABLES)] = []
    """Environment variables of the script."""
    backoff_limit: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    """Has no effect, as in the et-operator."""


class ScaleOutSpec(_ScalerSpec, frozen=True, kw_only=True, rename="camel"):
    to_add: ToAdd
    """How many workers come."""


class ScaleInSpec(_ScalerSpec, frozen=True, kw_only=True, rename="camel"):
    to_delete: ToDelete


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
    given = spec.to_delete
    if given.pod_names is not None:
        names = tuple(dict.fromkeys(given.pod_names))
        return Scaler(_job(spec), len(names), names, _script(spec))
    if given.count is None:
        raise InvalidSpec("spec.toDelete", "has neither count nor podNames", "set one of the two")
    return Scaler(_job(spec), given.count, script=_script(spec))


READERS: Final = {SCALE_OUTS: read_scale_out, SCALE_INS: read_scale_in}


def read(type_: ResourceType, object_: Object) -> Scaler:
    """The accepted spec of a scaler of this type. Raises: InvalidSpec"""
    return READERS[type_](object_)


def job_of(scaler: Object) -> str:
    """The name of the TrainingJob that a scaler names; "" for none. Total."""
    name: Any = mapping(mapping(scaler.get("spec")).get("selector")).get("name")
    return name if isinstance(name, str) else ""


def _job(spec: _ScalerSpec) -> str:
    check_object_name(spec.selector.name, "spec.selector.name", "TrainingJob")
    return spec.selector.name


def _script(spec: _ScalerSpec) -> Script:
    if "\n" in spec.script or "\0" in spec.script:
        problem = f"{shown(spec.script)} is more than one line"
        remedy = "put the script into the launcher's image, and give its path"
        raise InvalidSpec("spec.script", problem, remedy)
    env = tuple((each.name, each.value) for each in spec.env)
    return Script(spec.script.strip(), spec.timeout or DEFAULT_TIMEOUT_S, env)
