"""Decides who takes part in a round, and when the round closes. Pure: moments are parameters.

Not thread-safe. Moments are seconds of any monotonic clock.

A round waits for all present participants. A participant is present if it joined and sent a beat
within `gone_after_s`. The first round also waits until the expected number has joined. After a
restart of the aggregator the current round waits for the expected number, too, but for at most
`gone_after_s`. For the same time the round waits until each participant from before the restart has
joined again. Otherwise a participant that has sent its update already would miss the next round, or
the result. After `deadline_s` a round closes with the updates that it has, if they are enough.
"""

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from edgeai.errors import SettingsError

FIRST: Final = 1
SEED: Final = 0  # the number of the round until there is a model


class RoundSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Raises: SettingsError naming the field"""

    rounds: int = 10
    expected_participants: int = 1
    min_participants: int = 1
    """a round with fewer participants that have samples does not close"""
    deadline_s: float = 600.0
    """limit of a round, from the moment when min_participants take part"""
    gone_after_s: float = 60.0

    def __post_init__(self) -> None:
        for field in ("rounds", "expected_participants", "min_participants"):
            if getattr(self, field) < 1:
                raise SettingsError(field, f"is {getattr(self, field)}, expected 1 or more")
        if self.min_participants > self.expected_participants:
            problem = f"is {self.min_participants}, and {self.expected_participants} are expected"
            raise SettingsError("min_participants", f"{problem}: no round could close")
        for field in ("deadline_s", "gone_after_s"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value > 0):
                raise SettingsError(field, f"is {value}, expected seconds, more than 0")


class Rounds:
    """The current round. `number` is SEED until there is a model."""

    def __init__(self, settings: RoundSettings, *, now_s: float, number: int = SEED) -> None:
        self._settings = settings
        self.number = number
        self._last_beat_s: dict[str, float] = {}  # by participant, also from before a restart
        self._returning: set[str] = set()  # joined before a restart, and not again yet
        self._samples: dict[str, int] = {}  # by participant that sent an update in this round
        self._since_s: float | None = None  # when enough participants were first present
        self._is_gathered = False
        self._gathers_until_s = now_s + settings.gone_after_s if number > FIRST else math.inf

    # ---- events ---------------------------------------------------------------------------------

    def join(self, name: str, now_s: float) -> None:
        self._last_beat_s[name] = now_s
        self._returning.discard(name)
        self._note_presence(now_s)

    def expect_again(self, names: Iterable[str], now_s: float) -> None:
        """These participants were present before a restart, and must join again."""
        self._returning |= set(names)
        self._last_beat_s |= dict.fromkeys(self._returning, now_s)

    def note_beat(self, name: str, now_s: float) -> bool:
        """Returns: False if the participant has not joined, or has left"""
        if name not in self._last_beat_s or name in self._returning:
            return False
        self._last_beat_s[name] = now_s
        return True

    def leave(self, name: str) -> None:
        self._last_beat_s.pop(name, None)
        self._returning.discard(name)

    def note_update(self, name: str, samples: int, now_s: float) -> None:
        self._samples[name] = samples
        self._note_presence(now_s)

    def begin(self, number: int, now_s: float) -> None:
        """Begin round `number`. All present participants take part."""
        self.number = number
        self._samples.clear()
        self._since_s = None
        self._note_presence(now_s)

    # ---- questions ------------------------------------------------------------------------------

    def has_sent(self, name: str) -> bool:
        return name in self._samples

    def present(self, now_s: float) -> frozenset[str]:
        gone_s = now_s - self._settings.gone_after_s
        return frozenset(name for name, beat_s in self._last_beat_s.items() if beat_s > gone_s)

    def seeder(self, now_s: float) -> str:
        """The participant that gives the first weights: the first present one that joined."""
        present = self.present(now_s)
        return next((name for name in self._last_beat_s if name in present), "")

    def useful(self) -> int:
        return sum(samples > 0 for samples in self._samples.values())

    def can_close(self, now_s: float) -> bool:
        if self.number == SEED or self.useful() < self._settings.min_participants:
            return False
        if self._since_s is not None and now_s >= self._since_s + self._settings.deadline_s:
            return True
        is_gathered = self._is_gathered or now_s >= self._gathers_until_s
        return is_gathered and not self.awaited(now_s)

    def obstacle(self, now_s: float) -> str:
        """Why this round cannot close although all present participants have sent; "" otherwise."""
        if self.awaited(now_s) or self.can_close(now_s):
            return ""
        settings, present = self._settings, len(self.present(now_s))
        return (
            f"{present} participants are present and {self.useful()} sent an update with samples; "
            f"expected are {settings.expected_participants}, at least {settings.min_participants}"
        )

    def awaited(self, now_s: float) -> frozenset[str]:
        present = self.present(now_s)
        return (present - self._samples.keys()) | (present & self._returning)

    def _note_presence(self, now_s: float) -> None:
        count = len(self.present(now_s) | self._samples.keys())
        if count >= self._settings.expected_participants:
            self._is_gathered = True
        if self._since_s is None and count >= self._settings.min_participants:
            self._since_s = now_s
