"""ScaleOut and ScaleIn as the API holds them.

Source of the fields: AliyunContainerService/et-operator, pkg/api/v1alpha1/scaler_types.go.
"""

from typing import Annotated, Final

import msgspec

from edgeai.api.definitions import Definition
from edgeai.api.elastic import SCALE_INS, SCALE_OUTS
from edgeai.api.specs import NonEmpty
from edgeai.api.status import LIST_BY_TYPE, Time
from edgeai.api.training import JobCondition

DEFAULT_TIMEOUT_S: Final = 60
MAX_TIMEOUT_S: Final = 86400
MAX_COUNT: Final = 1000
MAX_SCRIPT_CHARS: Final = 16 * 1024
MAX_VARIABLES: Final = 100
_MAX_VALUE_CHARS: Final = 4096
Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]


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


class ScalerSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
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


class ScaleOutSpec(ScalerSpec, frozen=True, kw_only=True, rename="camel"):
    """Adds workers to a TrainingJob."""

    to_add: ToAdd
    """How many workers come."""


class ScaleInSpec(ScalerSpec, frozen=True, kw_only=True, rename="camel"):
    """Takes workers from a TrainingJob."""

    to_delete: ToDelete


class ScalerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of one scaler."""

    phase: str = ""
    """A ScalerState."""
    message: str = ""
    """What the scaler waits for, or how it ended."""
    conditions: Annotated[list[JobCondition], LIST_BY_TYPE] = []
    """In the order of the changes, the oldest first."""
    start_time: Time | None = None
    """When the job began to execute the scaler."""
    completion_time: Time | None = None
    """When the scaler succeeded or failed."""


class ScaleOutStatus(ScalerStatus, frozen=True, kw_only=True, rename="camel"):
    add_pods: list[str] = []
    """The pods of the new workers. The list is written before the pods are made."""


class ScaleInStatus(ScalerStatus, frozen=True, kw_only=True, rename="camel"):
    to_delete_pods: list[str] = []
    """The pods of the workers that go."""


SCALE_OUT: Final = Definition(
    types=(SCALE_OUTS,),
    spec=ScaleOutSpec,
    status=ScaleOutStatus,
    has_workers=False,
)
SCALE_IN: Final = Definition(
    types=(SCALE_INS,),
    spec=ScaleInSpec,
    status=ScaleInStatus,
    has_workers=False,
)
