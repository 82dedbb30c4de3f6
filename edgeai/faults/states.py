"""The state of a job, and the contact of a node: one word and one colour for each.

The command line and the web console show the same. Pure.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Final

from edgeai.faults.faults import Fault
from edgeai.faults.remedies import Cause


class State(enum.StrEnum):
    """What a person looks at first comes first."""

    BAD = "bad"
    WAITING = "waiting"
    GOOD = "good"
    DONE = "done"

    @property
    def word(self) -> str:
        return _WORDS[self]

    @property
    def style(self) -> str:
        """The colour in a terminal. The console has its own shade of it for light and dark."""
        return _STYLES[self]


_WORDS: Final[Mapping[State, str]] = {
    State.BAD: "failed",
    State.WAITING: "waiting",
    State.GOOD: "running",
    State.DONE: "ended",
}
_STYLES: Final[Mapping[State, str]] = {
    State.BAD: "red",
    State.WAITING: "yellow",
    State.GOOD: "green",
    State.DONE: "cyan",
}
_OF_PHASE: Final[Mapping[str, State]] = {
    **dict.fromkeys(("Failed", "Invalid", "ScaleFailed"), State.BAD),
    **dict.fromkeys(("Succeeded", "ScaleSucceeded", "Suspended"), State.DONE),
}
_STARTING: Final = frozenset({"-", "Created", "Pending"})
_CRASHES: Final = frozenset({Cause.IMAGE, Cause.CRASH})


def state_of(phase: str, faults: Sequence[Fault]) -> State:
    """Args: phase, faults: of one job, as `phase_of` and `faults_of` give them"""
    if state := _OF_PHASE.get(phase):
        return state
    if any(fault.cause in _CRASHES for fault in faults):
        return State.BAD  # a crash loop never ends by itself
    return State.WAITING if faults or phase in _STARTING else State.GOOD


def contact_of(*, is_connected: bool, is_expected: bool) -> tuple[str, State]:
    """The word for the contact with a node. Args: is_expected: the node is at the edge, or has had
    a session
    """
    if is_connected:
        return "connected", State.GOOD
    return ("no session", State.BAD) if is_expected else ("none needed", State.DONE)
