"""Decides which version of its Model each node of a fleet gets while a new one goes out in waves.

`decide` computes the next state of a rollout from its last one; `version_of` computes the version
of a node from the stored state alone. So a node gets a version only after the decision is stored,
and a GlobalManager that is killed at any moment goes on with the same decision.

The state names no nodes. Each node has a place, a number that depends on its name and the version,
and the state has the last place that gets the version. A node that comes has its place already. The
last place only grows, so a node never goes back unless the version is taken back. Who takes it back
gives the former content a new number: the version of an assignment never falls. A wave has so many
nodes of all, and not of those in contact: the others get the version when they are back.

A wave ends when its nodes have shown that they serve: nine in ten of those that could when it
began. A node that was out of contact, or did not serve, does not hold it; a node that has lost
contact since does. Pure: the only clock is `now`.
"""

import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Final, NamedTuple
from zlib import crc32

import msgspec
from msgspec.structs import replace

from edgeai.api.rollouts import (
    ALL_NODES,
    MAX_BROKEN,
    Guard,
    ModelVersion,
    Phase,
    Rollout,
    RolloutStatus,
)
from edgeai.api.status import left_s
from edgeai.ids import NodeName
from edgeai.times import rfc3339
from globalmanager.kinds.shared.contacts import named

_LAST_PLACE: Final = 2**31 - 1
_SHARE_OF_FAILURES: Final = 10
"""A version has failed when it fails on more than one in ten of the nodes that should serve."""
SLOW_S: Final = 600.0
"""A node that has not got the version after this time holds its wave no more, and one that says why
has failed."""
_PASSING: Final = "Unavailable"
"""The obstacle that goes away without an edit: the server does not answer, or stops."""
_MAX_LABELS: Final = 20  # as many as spec.rollout.waves
_MAX_TIMES: Final = 2
_MAX_MORE: Final = 10
"""Where the nodes before are out of contact, a wave becomes so many times larger and so many nodes
more, and no larger: those nodes get the version when they are back."""
_IS_PAUSED: Final = "held by spec.rollout.paused"
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Member(msgspec.Struct, frozen=True, gc=False):
    node: NodeName
    labels: Mapping[str, str]
    is_connected: bool
    is_able: bool
    """Whether its worker runs."""
    serves: int = 0
    """Number of the version that its worker answers with, as it last said; 0: none."""
    fails: int = 0
    """Number of the version that its worker cannot load; 0: none."""
    obstacle: str = ""
    """Why the node does not get the content of the version that goes out; "": it names no reason.
    One word, as in condition Delivered of the Model."""
    crashes_in_s: float = math.inf
    """Seconds until its worker has ended again and again for a while; 0 or less: it has."""
    samples: int = 0
    """Number of samples that its process has answered with version `serves`."""
    hits: int = 0
    """Number of them that the guard's metric counts."""


class Decision(NamedTuple):
    state: RolloutStatus | None
    progress: str = ""
    """How far the wave is."""
    check_in_s: float = math.inf
    """Seconds after which the next decision is due although nothing changed."""


# ---- the version of a node ----------------------------------------------------------------------


class Waves:
    """Which nodes the waves of a rollout have reached."""

    def __init__(self, state: RolloutStatus) -> None:
        self._state = state
        self._seed = _seed(state.version)
        self._is_back = state.phase is Phase.ROLLED_BACK
        # Those of the state: an edit of the waves takes no version from a node.
        items = ([item.split("=", 1) for item in wave.split(",")] for wave in state.labels)
        self._selectors = [dict(item) for item in items]

    def version_of(self, node: NodeName, labels: Mapping[str, str]) -> ModelVersion:
        state = self._state
        if state.previous is None or state.phase is Phase.COMPLETE:
            return state.version
        is_reached = self._reaches(node, labels)
        return state.version if is_reached and not self._is_back else state.previous

    def reached(self, members: Collection[Member]) -> list[Member]:
        return [one for one in members if self._reaches(one.node, one.labels)]

    def _reaches(self, node: NodeName, labels: Mapping[str, str]) -> bool:
        if crc32(node.encode(), self._seed) >> 1 <= self._state.reach:
            return True
        return any(selector.items() <= labels.items() for selector in self._selectors)


def place_of(node: NodeName, version: ModelVersion) -> int:
    """The place of a node, from 0 to 2147483647. Other nodes come first with each version."""
    return crc32(node.encode(), _seed(version)) >> 1


def _seed(version: ModelVersion) -> int:
    return crc32(f"{version.number}/".encode())


# ---- which version goes out ---------------------------------------------------------------------


def decide(
    rollout: Rollout | None,
    state: RolloutStatus | None,
    newest: ModelVersion | None,
    members: Iterable[Member],
    now: datetime,
) -> Decision:
    """The next state. The same state means that nothing changes. Only a version that is under way
    looks at the members: a fleet has thousands of them.

    Args:
        rollout: None: every version goes to all nodes at once
        state: the stored state; None before the first version
        newest: what the Model names now; None: nothing that could go out
    """
    if state is None:
        # Nothing runs that a first version could make worse.
        if rollout is None or newest is None:
            return Decision(None)
        return Decision(RolloutStatus(version=newest, phase=Phase.COMPLETE))
    if newest is not None:
        state = _with_newest(state, newest)
    top = max(state.newest_number, newest.number if newest else 0)
    if rollout is None:
        return Decision(_completed(state, top))
    if rollout.rejected == state.version.number and state.phase is not Phase.ROLLED_BACK:
        message = f"{state.version} is in spec.rollout.rejected"
        if state.previous is None:
            return Decision(state, f"{message}, and there is none before it")
        state = _returned(state, top, message)
    if state.phase not in (Phase.PROGRESSING, Phase.PAUSED):
        return Decision(state)
    return _UnderWay(rollout, state, top, list(members), now).decision()


def _with_newest(state: RolloutStatus, newest: ModelVersion) -> RolloutStatus:
    """The state before the first wave of a new version; the same when there is none."""
    present, is_back = state.version, state.phase is Phase.ROLLED_BACK
    # The cache of a new leader may have a Model that is older than the stored state.
    if newest.model == present.model and newest.generation <= present.generation:
        return state
    if newest.has_content_of(present) and not is_back:
        names = {"generation": newest.generation, "model": newest.model}
        return replace(state, version=replace(present, **names))
    good = present if state.phase is Phase.COMPLETE else state.previous or present
    top = state.newest_number
    if newest.has_content_of(good):  # somebody has published the last good version again
        return RolloutStatus(version=_numbered(newest, top), phase=Phase.COMPLETE)
    # The nodes that an unfinished version has reached return first: there are never three versions.
    if good is not present and not is_back and state.wave:
        top = max(top, newest.number) + 1
        good = replace(good, number=top)
    return RolloutStatus(version=_numbered(newest, top), previous=good, phase=Phase.PROGRESSING)


def _numbered(newest: ModelVersion, top: int) -> ModelVersion:
    return replace(newest, number=max(newest.number, top + 1))


def _completed(state: RolloutStatus, top: int) -> RolloutStatus:
    """Args: top: as of `_returned`"""
    if state.phase is Phase.COMPLETE:
        return state
    # A node may hold a later number than that of a version that was taken back.
    is_back = state.phase is Phase.ROLLED_BACK
    version = replace(state.version, number=top + 1) if is_back else state.version
    return RolloutStatus(version=version, previous=state.previous, phase=Phase.COMPLETE)


def _returned(state: RolloutStatus, top: int, message: str) -> RolloutStatus:
    """The state in which every node gets the version before.

    Args: top: greatest number of assignments so far, also for other services that use the Model
    """
    if state.previous is None:
        return state
    previous = replace(state.previous, number=top + 1, instead_of=state.version.generation)
    return RolloutStatus(
        version=state.version,
        previous=previous,
        phase=Phase.ROLLED_BACK,
        wave=state.wave,
        message=message,
    )


# ---- the next wave ------------------------------------------------------------------------------


class _UnderWay:
    """A version that goes out, and what the nodes of its waves show."""

    def __init__(
        self, rollout: Rollout, state: RolloutStatus, top: int, members: list[Member], now: datetime
    ) -> None:
        self._rollout, self._state, self._top = rollout, state, top
        self._members, self._now = members, now
        self._slow_in_s = left_s(state.wave_time, SLOW_S, now)
        self._waves = rollout.all_waves
        self._number = state.version.number
        # Of the nodes that the waves have reached. In the end these are thousands, and few of them
        # do not serve.
        self._serving: list[Member] = []
        self._others: list[Member] = []
        for one in Waves(state).reached(members):
            serves = self._number == one.serves != one.fails and one.is_connected
            # A worker that has ended since it answered with the version serves no more.
            (self._serving if serves and one.is_able else self._others).append(one)
        self._size = len(self._serving) + len(self._others)
        # They have answered with the version, and have ended or lost contact since.
        self._ended = [one for one in self._others if one.serves == self._number]
        # Nodes that have left since count as nodes that could have served.
        left = max(0, state.nodes - self._size)
        self._expected = max(0, state.expected - left)

    def decision(self) -> Decision:
        # Nodes out of contact show nothing, and get nothing before they are back. A fleet without a
        # node, perhaps for a moment, has shown nothing either.
        if not any(one.is_connected for one in self._members):
            return Decision(self._state, f"{self._state.version}: no node is in contact")
        decision = self._next()
        # No event tells that a worker has crashed for long enough.
        waits_s = [decision.check_in_s, *(one.crashes_in_s for one in self._others)]
        return decision._replace(check_in_s=min((s for s in waits_s if s > 0), default=math.inf))

    def _next(self) -> Decision:
        rollout, state = self._rollout, self._state
        # Before the first wave nothing can have failed.
        is_judged = state.wave and state.phase is Phase.PROGRESSING
        message = self._failure() if is_judged else ""
        if message and rollout.on_failure == "rollback":
            return Decision(_returned(state, self._top, message))
        if message:
            state = replace(state, phase=Phase.PAUSED, message=message)
        # The first wave waits for no promotion: there is nothing to judge before it.
        allowed = 0 if rollout.paused or state.wave else 1
        if rollout.promoted and rollout.promoted.version == state.version.number:
            allowed = max(allowed, rollout.promoted.wave)
        if allowed > state.wave:
            return self._advanced(allowed)
        if state.wave == 0 or state.phase is Phase.PAUSED:
            return Decision(state, f"{state.version}: {_IS_PAUSED}")
        return self._progress()

    def _progress(self) -> Decision:
        """Begin the next wave when nothing is in the way."""
        rollout, state, text = self._rollout, self._state, self._text()
        # All nodes that could have shown something have left: others take their place.
        if not self._expected and "=" not in self._waves[: state.wave][-1]:
            again = self._advanced(state.wave)
            if again.progress or (again.state and again.state.expected):
                return again
        if not self._is_served():
            # A worker that starts again and again must serve for the whole pause at last.
            if any(one.is_connected and not one.is_able for one in self._ended):
                state = replace(state, done_time=None)
            return Decision(state, text, self._slow_in_s)
        if state.done_time is None:
            state = replace(state, done_time=rfc3339(self._now))
        pause_s, guard = rollout.pause_s, rollout.guard
        # Where no node has the labels of the wave, or none of them is in contact, no sample comes.
        is_seen = bool(self._serving) or any(one.is_connected for one in self._others)
        if guard is not None and is_seen:
            pause_s = max(pause_s, guard.window_s)
            if self._samples[0] < guard.min_samples:
                text += f"; waits for {guard.min_samples} samples"
                return Decision(state, text, self._slow_in_s)
        left = left_s(state.done_time, pause_s, self._now)
        if left > 0:
            return Decision(state, f"{text}; waits {pause_s} s from {state.done_time}", left)
        # The last wave has nothing to promote: its end is the end of the rollout.
        if rollout.paused or (rollout.promote == "manual" and state.wave < len(self._waves)):
            wait = _IS_PAUSED if rollout.paused else "waits for spec.rollout.promoted"
            return Decision(state, f"{text}; {wait}")
        return self._advanced(state.wave + 1)

    def _is_served(self) -> bool:
        tolerated = self._expected // _SHARE_OF_FAILURES
        if len(self._serving) < self._expected - tolerated:
            return False
        return self._slow_in_s <= 0 or all(
            self._number in (one.serves, one.fails)
            for one in self._others
            if one.is_connected and one.is_able
        )

    def _text(self) -> str:
        state = self._state
        wave = f"wave {state.wave} of {len(self._waves)}"
        text = f"{wave}: {len(self._serving)} of {self._size} nodes serve {state.version}"
        lost = sum(not one.is_connected for one in self._ended)
        text += f"; {lost} have lost contact since they got it" if lost else ""
        missing = [one for one in self._others if one.is_connected]
        text += f"; not {named([one.node for one in missing])}" if missing else ""
        obstacles = {one.obstacle for one in missing if one.obstacle}
        return f"{text}: {named(obstacles)}" if obstacles else text

    def _advanced(self, wave: int) -> Decision:
        """The state at the beginning of a wave, or after the last one."""
        state, waves = self._state, self._waves
        if wave > len(waves):
            return Decision(_completed(state, self._top))
        place = self._last_place(waves[:wave])
        if place is None:
            return Decision(state, f"{state.version}: wave {wave} waits for nodes in contact")
        labels = (*state.labels, *(one for one in waves[:wave] if "=" in one))
        state = replace(
            state,
            phase=Phase.PROGRESSING,
            wave=wave,
            reach=max(state.reach, place),
            labels=list(dict.fromkeys(labels))[:_MAX_LABELS],
            wave_time=rfc3339(self._now),
            done_time=None,
            message="",
        )
        reached = Waves(state).reached(self._members)
        # Who crashes in the waves so far may do so with this version.
        before = frozenset(one.node for one in self._others)
        new = (one for one in reached if one.crashes_in_s < math.inf and one.node not in before)
        broken = [*state.broken, *(place_of(one.node, state.version) for one in new)]
        state = replace(
            state,
            nodes=len(reached),
            expected=len(_witnesses(reached)),
            broken=broken[:MAX_BROKEN],
            crashing=state.crashing + len(broken[MAX_BROKEN:]),
        )
        return Decision(state, check_in_s=SLOW_S)

    def _last_place(self, waves: Sequence[str]) -> int | None:
        """The last place that gets the version with these waves; -1 for none; None while the nodes
        in contact are so far behind it that the waves would be much larger than they should.
        """
        if ALL_NODES in waves:
            return _LAST_PLACE
        places = sorted(place_of(one.node, self._state.version) for one in self._members)
        size = max((wave_size(wave, len(places)) for wave in waves), default=0)
        if not size:
            return -1
        # At least one node that can show something.
        first = min(place_of(one.node, self._state.version) for one in _witnesses(self._members))
        if bisect_left(places, first) > _MAX_TIMES * size + _MAX_MORE:
            return None
        return max(places[:size][-1], first)

    # ---- failures -------------------------------------------------------------------------------

    def _failure(self) -> str:
        """Why the version must be stopped, with the figures; "": nothing says so."""
        # Workers that crashed before their wave crash with any version. A worker may crash before
        # it has told that it has the version, so all others count.
        version, broken = self._state.version, frozenset(self._state.broken)
        faulty = [one.node for one in self._others if one.fails == self._number]
        lacking = {one.node: one.obstacle for one in self._others if self._lacks_content(one)}
        crashed = sorted(
            one.node
            for one in self._others
            if one.fails != self._number
            and one.crashes_in_s <= 0
            and (one.is_connected or one.serves == self._number)
            and place_of(one.node, version) not in broken
        )
        # Of those beyond the list only their number is known.
        failed = sorted({*faulty, *lacking, *crashed[self._state.crashing :]})
        # Nodes that have come into contact since the wave began could serve as well.
        expected = max(1, self._expected, len(self._serving) + len(failed))
        if len(failed) * _SHARE_OF_FAILURES > expected:
            text = f"{len(failed)} of the {expected} nodes that should serve it: {named(failed)}"
            reasons = named(set(lacking.values()))
            faults = f"cannot be fetched ({reasons}), " if lacking else ""
            return f"{version} {faults}cannot be loaded or crashes on {text}"
        return self._guard_failure(self._rollout.guard) if self._rollout.guard else ""

    def _lacks_content(self, one: Member) -> bool:
        """Whether a node that could serve the version does not get it. Slow nodes have not failed,
        and a server that is away says nothing of the version.
        """
        is_known = one.obstacle not in ("", _PASSING) and self._slow_in_s <= 0
        return is_known and one.is_connected and one.is_able

    def _guard_failure(self, guard: Guard) -> str:
        samples, hits = self._samples
        if samples < guard.min_samples:
            return ""
        share = hits / samples
        if _COMPARISONS[guard.operator](share, guard.threshold):
            return ""
        figures = (
            f"{guard.metric} is {share:.4g} of {samples:.0f} samples with {self._state.version}"
        )
        return f"{figures}, and must be {guard.operator} {guard.threshold:g}"

    @cached_property
    def _samples(self) -> tuple[float, float]:
        """Samples, and hits among them, of the processes that answer with the version, since each
        of them has loaded it. A process that starts again begins at zero, with all its counts.
        """
        guard = self._rollout.guard
        members = (*self._serving, *self._ended)
        return guard.share_of((one.samples, one.hits) for one in members) if guard else (0.0, 0.0)


def wave_size(wave: str, nodes: int) -> int:
    """How many nodes a wave should have; 0 for a wave by labels."""
    if "=" in wave:
        return 0
    return math.ceil(nodes * int(wave[:-1]) / 100) if wave.endswith("%") else int(wave)


def _witnesses(members: Collection[Member]) -> list[Member]:
    """The nodes that can show whether a version is good: in contact, and serving; where none
    serves, those in contact.
    """
    connected = [one for one in members if one.is_connected]
    return [one for one in connected if one.is_able] or connected
