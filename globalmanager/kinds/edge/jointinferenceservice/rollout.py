"""Decides which version each node of a fleet gets while a new version goes out in waves.

`decide` computes the next state of a rollout from its last one; `version_of` computes the version
of a node from the stored state alone. So a node gets a version only after the decision is stored,
and a GlobalManager that is killed at any moment goes on with the same decision.

The state names no nodes. Each node has a place, a number that depends on its name and the version,
and the state has the last place that gets the version. A node that comes has its place already. The
last place only grows, so a node never goes back unless the version is rolled back.

A node out of contact does not hold a wave. It gets the version of its place when it is back.
Pure: the only clock is `now`.
"""

import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from edgeai.api.rollouts import Guard, Phase, Rollout, RolloutStatus, Window
from edgeai.api.status import left_s
from edgeai.ids import NodeName
from edgeai.times import rfc3339

_ALL: Final = "100%"
_LAST_PLACE: Final = 2**31 - 1
_SHARE_OF_FAILURES: Final = 10
"""A version has failed when it fails on more than one in ten of the nodes that it should run on."""
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Member(NamedTuple):
    """A node of the fleet as it is now."""

    node: NodeName
    labels: Mapping[str, str]
    is_connected: bool
    version: str
    """The version that the node serves, as it last said; "": none."""
    has_failed: bool = False
    """Whether the node says that it cannot serve the version that it should."""


class Figures(NamedTuple):
    """What the workers with the new version have counted since they had it, on all nodes."""

    seen: int = 0
    hits: int = 0
    """Samples that count for the guard's metric."""


class Decision(NamedTuple):
    state: RolloutStatus
    check_in_s: float | None = None
    """Seconds after which the next decision is due although nothing changed."""


# ---- the version of a node ----------------------------------------------------------------------


def version_of(rollout: Rollout, state: RolloutStatus, member: Member) -> str:
    """The version that a node should serve."""
    return state.version if _is_reached(rollout, state, member) else state.previous


def _is_reached(rollout: Rollout, state: RolloutStatus, member: Member) -> bool:
    if state.phase in (Phase.ROLLED_BACK, Phase.COMPLETE):
        return state.phase is Phase.COMPLETE
    if place_of(member.node, state.version) <= state.reach:
        return True
    # A node that has lost the label of its wave since keeps the version (no silent way back).
    return member.version == state.version or any(
        selector.items() <= member.labels.items()
        for selector in map(_selector, waves_of(rollout)[: state.wave])
        if selector
    )


def place_of(node: NodeName, version: str) -> int:
    """The place of a node, from 0 to 2147483647. Other nodes come first with each version."""
    return crc32(f"{version}/{node}".encode()) >> 1


def waves_of(rollout: Rollout) -> Sequence[str]:
    return rollout.waves if rollout.waves[-1] == _ALL else [*rollout.waves, _ALL]


def _selector(wave: str) -> dict[str, str]:
    """The labels of a wave; empty for a wave by number or share."""
    return dict(item.split("=", 1) for item in wave.split(",")) if "=" in wave else {}


# ---- the next decision --------------------------------------------------------------------------


def decide(
    rollout: Rollout,
    state: RolloutStatus | None,
    version: str,
    members: Collection[Member],
    figures: Figures,
    now: datetime,
) -> Decision:
    """The next state. The same state means that nothing changes.

    Args:
        state: the stored state; None before the first version
        version: the version that should go out
    """
    if state is None:
        # Nothing runs that a first version could make worse.
        return Decision(RolloutStatus(version=version, phase=Phase.COMPLETE))
    if state.version != version:
        state = _begun(state, version)
    if state.phase is not Phase.ROLLED_BACK and rollout.rejected == version and state.previous:
        message = f"version {version} is in spec.rollout.rejected"
        state = msgspec.structs.replace(state, phase=Phase.ROLLED_BACK, message=message)
    # Nodes out of contact show nothing, and get nothing before they are back.
    is_cut_off = bool(members) and not any(one.is_connected for one in members)
    if state.phase in (Phase.ROLLED_BACK, Phase.COMPLETE) or is_cut_off:
        return Decision(state)
    # Before the first wave nothing can have failed.
    if state.wave and state.phase is Phase.PROGRESSING:
        state = _guarded(rollout, state, members, figures, now)
    if state.phase is Phase.ROLLED_BACK:
        return Decision(state)
    promotion = rollout.promoted
    allowed = promotion.wave if promotion and promotion.version == version else 0
    # The first wave waits for no promotion: there is nothing to judge before it.
    first = 0 if rollout.paused or state.wave else 1
    if max(allowed, first) > state.wave:
        return _advanced(rollout, state, max(allowed, first), members, figures, now)
    if state.wave == 0 or state.phase is Phase.PAUSED:
        return Decision(state)
    return _progress(rollout, state, members, figures, now)


def _begun(state: RolloutStatus, version: str) -> RolloutStatus:
    """The state before the first wave of a new version."""
    good = state.version if state.phase is Phase.COMPLETE else state.previous
    if version == good:  # somebody has published the last good version again
        return RolloutStatus(version=version, phase=Phase.COMPLETE)
    return RolloutStatus(version=version, previous=good)


def _progress(
    rollout: Rollout,
    state: RolloutStatus,
    members: Collection[Member],
    figures: Figures,
    now: datetime,
) -> Decision:
    """Begin the next wave when nothing is in the way."""
    state = _extended(rollout, state, members)
    present = _present(rollout, state, members)
    if state.done_time is None and all(one.version == state.version for one in present):
        state = msgspec.structs.replace(state, done_time=rfc3339(now))
    if state.done_time is None:
        return Decision(state, _window_left_s(rollout.guard, state, now))
    pause_s = left_s(state.done_time, rollout.pause_s, now)
    if pause_s > 0:
        return Decision(state, pause_s)
    # Where no node has the labels of the wave, or none of them is in contact, no sample can come.
    is_proven = rollout.guard is None or state.is_proven or not present
    is_last = state.wave >= len(waves_of(rollout))
    # The last wave has nothing to promote: its end is the end of the rollout.
    if not is_proven or rollout.paused or (rollout.promote == "manual" and not is_last):
        return Decision(state, _window_left_s(rollout.guard, state, now))
    return _advanced(rollout, state, state.wave + 1, members, figures, now)


def _present(rollout: Rollout, state: RolloutStatus, members: Collection[Member]) -> list[Member]:
    """The nodes of the waves so far that are in contact and can serve the version."""
    return [
        one
        for one in members
        if one.is_connected and not one.has_failed and _is_reached(rollout, state, one)
    ]


def _extended(rollout: Rollout, state: RolloutStatus, members: Collection[Member]) -> RolloutStatus:
    """The state with one more node, when all nodes of the wave have lost contact."""
    if _present(rollout, state, members):
        return state
    wave = waves_of(rollout)[: state.wave][-1]
    reach = max(state.reach, _reach(wave, state.version, members))
    if reach == state.reach:
        return state
    return msgspec.structs.replace(state, reach=reach, done_time=None)


def _advanced(
    rollout: Rollout,
    state: RolloutStatus,
    wave: int,
    members: Collection[Member],
    figures: Figures,
    now: datetime,
) -> Decision:
    """The state at the beginning of a wave, or after the last one."""
    waves = waves_of(rollout)
    if wave > len(waves):
        return Decision(RolloutStatus(version=state.version, phase=Phase.COMPLETE))
    reach = max(state.reach, *(_reach(one, state.version, members) for one in waves[:wave]))
    state = msgspec.structs.replace(
        state,
        phase=Phase.PROGRESSING,
        wave=wave,
        reach=reach,
        done_time=None,
        window=Window(rfc3339(now), *figures),
        is_proven=False,
        message="",
    )
    return Decision(state, _window_left_s(rollout.guard, state, now))


def _reach(wave: str, version: str, members: Collection[Member]) -> int:
    """The last place that gets the version with this wave; -1 for none."""
    if wave == _ALL:
        return _LAST_PLACE
    if "=" in wave:
        return -1
    places = sorted(place_of(one.node, version) for one in members)
    present = sorted(place_of(one.node, version) for one in members if one.is_connected)
    # At least one node in contact, because the others would show nothing. A number counts only
    # those.
    first = present[:1]
    if wave.endswith("%"):
        share = math.ceil(len(places) * int(wave[:-1]) / 100)
        return max(places[share - 1 : share] + first, default=-1)
    number = int(wave)
    return max(present[number - 1 : number] or present[-1:], default=-1)


# ---- failures -----------------------------------------------------------------------------------


def _guarded(
    rollout: Rollout,
    state: RolloutStatus,
    members: Collection[Member],
    figures: Figures,
    now: datetime,
) -> RolloutStatus:
    """The state after a look at the nodes and the guard."""
    message = _failing_nodes(rollout, state, members)
    if rollout.guard is not None and not message:
        state, message = _measured(rollout.guard, state, figures, now)
    if not message:
        return state
    phase = Phase.ROLLED_BACK if rollout.on_failure == "rollback" else Phase.PAUSED
    # Without a version before there is nothing to return to.
    if not state.previous:
        phase = Phase.PAUSED
    return msgspec.structs.replace(state, phase=phase, message=message)


def _failing_nodes(rollout: Rollout, state: RolloutStatus, members: Collection[Member]) -> str:
    reached = [one for one in members if _is_reached(rollout, state, one)]
    failed = sorted(one.node for one in reached if one.has_failed)
    if len(failed) * _SHARE_OF_FAILURES <= len(reached):
        return ""
    text = f"version {state.version} fails on {len(failed)} of {len(reached)} nodes"
    return f"{text}: {', '.join(failed[:3])}{' …' if len(failed) > 3 else ''}"


def _measured(
    guard: Guard, state: RolloutStatus, figures: Figures, now: datetime
) -> tuple[RolloutStatus, str]:
    """The state with the present window, and why the guard fails; "" when it does not."""
    window = state.window or Window(rfc3339(now), *figures)
    seen, hits = figures.seen - window.seen, figures.hits - window.hits
    message = ""
    if seen >= guard.min_samples:
        share = hits / seen
        if _COMPARISONS[guard.operator](share, guard.threshold):
            state = msgspec.structs.replace(state, is_proven=True)
        else:
            message = (
                f"{guard.metric} is {share:.4g} of {seen} samples with version {state.version}, "
                f"and must be {guard.operator} {guard.threshold:g}"
            )
    # Counts fall when a node has lost its disk. A new window begins then, too, and a window with
    # too few samples goes on.
    is_over = left_s(window.since, guard.window_s, now, unknown=0) <= 0
    if seen < 0 or hits < 0 or (is_over and seen >= guard.min_samples):
        window = Window(rfc3339(now), *figures)
    return msgspec.structs.replace(state, window=window), message


def _window_left_s(guard: Guard | None, state: RolloutStatus, now: datetime) -> float | None:
    """Seconds until the window ends; None when nothing ends."""
    if guard is None or state.window is None:
        return None
    seconds = left_s(state.window.since, guard.window_s, now)
    return seconds if seconds > 0 else None
