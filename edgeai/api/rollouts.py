"""A rollout: a new version of a model goes to the nodes of a fleet in waves."""

import enum
from typing import Annotated, Final, Literal

import msgspec

from edgeai.api.specs import NonEmpty
from edgeai.api.status import Int32, Time

WAVE: Final = r"^([1-9][0-9]{0,8}|[1-9][0-9]?%|100%|[^=,%]+=[^=,]*(,[^=,%]+=[^=,]*)*)$"
Seconds = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Guard(msgspec.Struct, frozen=True, rename="camel"):
    """What must hold of the samples that workers with the new version have seen."""

    metric: NonEmpty
    """A count of the workers: hard, uploaded, answeredByCloud, fallbacks. The guard compares its
    share of the samples."""
    operator: Literal["<", "<=", ">", ">="]
    """How the share must compare with threshold."""
    threshold: float
    """A share, from 0 to 1."""
    min_samples: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1
    """The least number of samples in a window. With fewer samples nothing is decided."""
    window_s: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 300
    """Length of a window, in seconds."""


class Promotion(msgspec.Struct, frozen=True):
    """A person lets a version go out, whatever guard and pause say."""

    version: NonEmpty
    """The version. A promotion has no effect on another version."""
    wave: Annotated[int, msgspec.Meta(ge=1, le=100)]
    """The last wave that may begin; the first wave has the number 1."""


class Rollout(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a new version goes out."""

    waves: Annotated[
        list[Annotated[str, msgspec.Meta(pattern=WAVE, max_length=253)]],
        msgspec.Meta(min_length=1, max_length=20),
    ]
    """Sizes of the waves, each together with the waves before: a number of nodes ("1"), a share of
    them ("10%"), or the nodes with some labels ("hall=north"). A last wave of all nodes follows by
    itself."""
    pause_s: Seconds = 0
    """Seconds from the end of a wave to the next one."""
    promote: Literal["auto", "manual"] = "auto"
    """Whether the next wave begins by itself, or waits for `promoted`."""
    guard: Guard | None = None
    on_failure: Literal["pause", "rollback"] = "rollback"
    """What happens when the guard or too many nodes fail: nothing more goes out, or every node
    returns to the version before."""
    paused: bool = False
    """Whether no further wave may begin. The guard goes on."""
    promoted: Promotion | None = None
    rejected: str = ""
    """A version that is taken back from every node."""


class Phase(enum.StrEnum):
    """The state of a rollout in one word."""

    PROGRESSING = "Progressing"  # a wave goes out, or the next one waits
    PAUSED = "Paused"  # the version has failed; a person decides
    ROLLED_BACK = "RolledBack"  # every node returns to the version before. Final for this version
    COMPLETE = "Complete"  # every node gets the version


class Window(msgspec.Struct, frozen=True):
    """The counts at the beginning of a guard's window."""

    since: Time
    seen: int = 0
    hits: int = 0


class RolloutStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that a GlobalManager must know to go on with a rollout. Of the same size for a fleet of
    any size.
    """

    version: str
    """The version that goes out."""
    previous: str = ""
    """The last version that every node got, to which a rollback returns."""
    phase: Phase = Phase.PROGRESSING
    wave: Int32 = 0
    """Number of the wave that has begun last; 0 before the first one."""
    reach: Int32 = -1
    """Each node has a place from 0 to 2147483647 that depends on its name and the version. The
    nodes up to this place get the version."""
    done_time: Time | None = None
    """When every node of the wave that is in contact first had the version."""
    window: Window | None = None
    is_proven: bool = False
    """Whether the guard has held with enough samples since the wave began."""
    message: str = ""
    """Why the version has failed, with the figures."""
