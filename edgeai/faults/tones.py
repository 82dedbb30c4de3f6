"""The tone of a job, and of the contact with a node: one word and one colour for each.

The command line and the web console show the same. Pure.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Final, Self

from edgeai.faults.faults import Fault
from edgeai.faults.remedies import Cause


class Tone(enum.StrEnum):
    """What a person looks at first comes first."""

    word: str
    style: str
    """The colour in a terminal. The console has its own shade of it for light and dark."""

    def __new__(cls, value: str, word: str, style: str) -> Self:
        tone = str.__new__(cls, value)
        tone._value_, tone.word, tone.style = value, word, style
        return tone

    BAD = "bad", "failed", "red"
    WAITING = "waiting", "waiting", "yellow"
    GOOD = "good", "running", "green"
    DONE = "done", "ended", "cyan"

    @property
    def urgency(self) -> int:
        """0 is looked at first."""
        return tuple(Tone).index(self)


_OF_PHASE: Final[Mapping[str, Tone]] = {
    **dict.fromkeys(("Failed", "Invalid", "ScaleFailed"), Tone.BAD),
    **dict.fromkeys(("Succeeded", "ScaleSucceeded", "Suspended"), Tone.DONE),
}
_STARTING: Final = frozenset({"-", "Created", "Pending"})
_CRASHES: Final = frozenset({Cause.IMAGE, Cause.CRASH})


def tone_of(phase: str, faults: Sequence[Fault]) -> Tone:
    """Args: phase, faults: of one job, as `phase_of` and `faults_of` give them"""
    if tone := _OF_PHASE.get(phase):
        return tone
    if any(fault.cause in _CRASHES for fault in faults):
        return Tone.BAD  # a crash loop never ends by itself
    return Tone.WAITING if faults or phase in _STARTING else Tone.GOOD


def contact_of(*, is_connected: bool, is_expected: bool) -> tuple[str, Tone]:
    """The contact with a node. Args: is_expected: it is at the edge, or has had a session"""
    if is_connected:
        return "connected", Tone.GOOD
    return ("no session", Tone.BAD) if is_expected else ("none needed", Tone.DONE)
