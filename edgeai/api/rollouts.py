"""A rollout: a new version of a Model goes to the nodes of a fleet in waves."""

import enum
from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec

from edgeai.api.resources import Object
from edgeai.api.specs import NonEmpty
from edgeai.api.status import Int32, Time, condition_of, mapping, mappings

_LABELS: Final = "[^=,%]+=[^=,]*(,[^=,%]+=[^=,]*)*"
_WAVE: Final = f"^([1-9][0-9]{{0,8}}|[1-9][0-9]?%|100%|{_LABELS})$"
MAX_BROKEN: Final = 100
ALL_NODES: Final = "100%"
"""The last wave."""
_MAX_TIMES_OF_MEDIAN: Final = 10
Seconds = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Generation = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class ModelVersion(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Content of a Model that nodes get."""

    generation: Generation
    """metadata.generation of the Model when it named this content."""
    url: str
    """As in the Model."""
    sha256: str = ""
    """As in the Model."""
    credential_name: str = ""
    """As in the Model."""
    number: Generation = 0
    """The version of the assignments with this content, by which people name it. What nodes get
    later has a greater one, also when it is former content."""
    model: str = ""
    """The uid of the Model."""
    instead_of: Generation = 0
    """The generation that was taken back in favour of this content; 0: none."""

    def __str__(self) -> str:
        return f"version {self.number}"

    def has_content_of(self, other: "ModelVersion") -> bool:
        """False also where only a digest could tell."""
        content = (self.url, self.sha256, self.credential_name)
        return bool(self.sha256) and content == (other.url, other.sha256, other.credential_name)


class Guard(msgspec.Struct, frozen=True, rename="camel"):
    """What must hold of the samples that workers have answered with the new version."""

    metric: Literal["hard", "uploaded", "answeredByCloud", "fallbacks"]
    """A count of the workers. The guard compares its share of the samples."""
    operator: Literal["<", "<=", ">", ">="]
    """How the share must compare with threshold."""
    threshold: Annotated[float, msgspec.Meta(ge=0, le=1)]
    """A share, from 0 to 1."""
    min_samples: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] = 1
    """With fewer samples nothing is decided."""
    window_s: Seconds = 300
    """Seconds for which the guard must hold after the nodes of a wave have the version."""

    def share_of(self, workers: Iterable[tuple[int, int]]) -> tuple[float, float]:
        """Samples, and hits among them, as the guard judges them: a worker counts for ten at most,
        because it may say anything.

        Args: workers: samples and hits of each
        """
        counts = [(samples, hits) for samples, hits in workers if samples]
        in_order = sorted(samples for samples, _ in counts)
        median = in_order[(len(in_order) - 1) // 2] if counts else 0
        most = max(_MAX_TIMES_OF_MEDIAN * median, self.min_samples)
        hits = sum(hits * min(1.0, most / samples) for samples, hits in counts)
        return sum(min(samples, most) for samples, _ in counts), hits


class Promotion(msgspec.Struct, frozen=True):
    """A person lets a version go out, whatever guard and pause say."""

    version: Generation
    """status.rollout.version.number. A promotion has no effect on another version."""
    wave: Annotated[int, msgspec.Meta(ge=1, le=100)]
    """The last wave that may begin; the first wave has the number 1."""


class Rollout(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a new version of the edge worker's Model goes to the nodes."""

    waves: Annotated[
        list[Annotated[NonEmpty, msgspec.Meta(pattern=_WAVE, max_length=253)]],
        msgspec.Meta(min_length=1, max_length=20),
    ]
    """Sizes of the waves, each together with the waves before: a number of nodes ("1"), a share of
    them ("10%"), or the nodes with some labels ("hall=north"). A last wave of all nodes follows by
    itself."""
    pause_s: Seconds = 0
    """Seconds from the moment when the nodes of a wave have the version to the next wave."""
    promote: Literal["auto", "manual"] = "auto"
    """Whether the next wave begins by itself, or waits for `promoted`."""
    guard: Guard | None = None
    """What the workers' counts must show before the next wave."""
    on_failure: Literal["pause", "rollback"] = "rollback"
    """What happens when the guard or too many nodes fail: nothing more goes out, or every node
    returns to the version before."""
    paused: bool = False
    """Whether no further wave may begin. A version that fails is taken back all the same."""
    promoted: Promotion | None = None
    """The wave up to which a person lets a version go out."""
    rejected: Generation = 0
    """The status.rollout.version.number of a version that is taken back from every node."""

    @property
    def all_waves(self) -> list[str]:
        """With the last one, of all nodes."""
        return [*self.waves, *([ALL_NODES] if self.waves[-1] != ALL_NODES else [])]

    def __post_init__(self) -> None:
        # In Python, unlike in Kubernetes, the end of a pattern is also before a last line feed.
        if any(wave.endswith("\n") for wave in self.waves):
            raise ValueError("waves: a wave ends with a line feed; remove it")


class Phase(enum.StrEnum):
    """The state of a rollout in one word."""

    PROGRESSING = "Progressing"  # a wave goes out, or the next one waits
    PAUSED = "Paused"  # the version has failed; a person decides
    ROLLED_BACK = "RolledBack"  # every node returns to the version before. Final for this version
    COMPLETE = "Complete"  # every node gets the version


class RolloutStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """All that a GlobalManager must know to go on with a rollout. Of the same size for a fleet of
    any size.
    """

    version: ModelVersion
    """The version that goes out."""
    previous: ModelVersion | None = None
    """The last version that every node got, to which a rollback returns."""
    phase: Phase
    """Its state in one word."""
    wave: Int32 = 0
    """Number of the wave that has begun last; 0 before the first one."""
    reach: Int32 = -1
    """Each node has a place from 0 to 2147483647 that depends on its name and the version. The
    nodes up to this place get the version."""
    labels: Annotated[
        list[Annotated[str, msgspec.Meta(pattern=f"^{_LABELS}$")]], msgspec.Meta(max_length=20)
    ] = []
    """The waves by labels that have begun. The nodes with these labels get the version."""
    wave_time: Time | None = None
    """When the wave began."""
    done_time: Time | None = None
    """When enough nodes of the wave first served with the version."""
    nodes: Int32 = 0
    """Number of nodes of the waves so far when the wave began."""
    expected: Int32 = 0
    """Number of them that could show whether the version is good: in contact, and serving."""
    broken: Annotated[list[Int32], msgspec.Meta(max_length=MAX_BROKEN)] = []
    """The places of nodes among them whose worker crashed again and again before their wave."""
    crashing: Int32 = 0
    """Number of such nodes that `broken` has no room for."""
    message: str = ""
    """Why the version was stopped, with the figures."""

    @property
    def newest_number(self) -> int:
        return max(self.version.number, self.previous.number if self.previous else 0)


def facts_of(object_: Object) -> dict[str, str]:
    """What a person wants to know of the rollout of a job: label -> text; empty without one."""
    status, spec = mapping(object_.get("status")), mapping(object_.get("spec"))
    state, waves = mapping(status.get("rollout")), mapping(spec.get("rollout")).get("waves")
    if not state:
        return {}
    version, before = mapping(state.get("version")), mapping(state.get("previous"))
    number = len(waves) + (waves[-1:] != [ALL_NODES]) if isinstance(waves, list) else 1
    counts = mappings(mapping(status.get("fleet")).get("versions"))
    facts = {
        "version": f"{version.get('number')} ({version.get('url')})",
        "version before": f"{before.get('number')} ({before.get('url')})" if before else "",
        "state": str(condition_of(object_, "RolledOut").get("reason") or state.get("phase")),
        "wave": f"{state['wave']} of {number}" if state.get("wave") else "",
        "workers": ", ".join(f"{one.get('nodes')} with {one.get('version')}" for one in counts),
        "message": str(condition_of(object_, "RolledOut").get("message", "")),
    }
    return {label: text for label, text in facts.items() if text}
