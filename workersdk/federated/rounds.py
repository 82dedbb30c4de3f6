"""Who takes part in a round, and when it closes. Pure: moments go in, answers come out.

Driven by the aggregator, which owns the lock and the clock (seconds, any monotonic clock).

A round waits for everybody who is present. Present is who joined and was heard of within
`gone_after_s`. The first round also waits until as many as expected have joined, and so does the
one that a restarted aggregator finds, for `gone_after_s`; as long it waits for those it knows from
before, whether or not they have sent: else they would miss the next round, or the result. After
`deadline_s` a round closes with those who have sent, if they are enough.
"""

import math
from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

from common.errors import SettingsError

FIRST: Final = 1
SEED: Final = 0  # the round in which there is no model yet

Positive = Annotated[int, msgspec.Meta(ge=1)]


class RoundSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Raises: SettingsError naming the field"""

    rounds: int = 10
    expected_participants: int = 1
    min_participants: int = 1
    """with samples; a round with fewer does not close"""
    deadline_s: float = 600.0
    """from a round's start; the first one's starts when enough have joined"""
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
    """The round under way. `number` is SEED until there is a model."""

    def __init__(self, settings: RoundSettings, *, now_s: float, number: int = SEED) -> None:
        self._settings = settings
        self.number = number
        self._heard_s: dict[str, float] = {}  # of those who joined, now or before a restart
        self._returning: set[str] = set()  # of before a restart, and not heard of since
        self._samples: dict[str, int] = {}  # of those who have sent in this round
        self._since_s: float | None = None  # since when enough are there
        self._is_gathered = False
        self._gathers_until_s = now_s + settings.gone_after_s if number > FIRST else math.inf

    # ---- what happens ---------------------------------------------------------------------------

    def join(self, name: str, now_s: float) -> None:
        self._heard_s[name] = now_s
        self._returning.discard(name)
        self._look(now_s)

    def expect(self, names: Iterable[str], now_s: float) -> None:
        """A restarted aggregator knows that these were present: they are to join again."""
        self._returning |= set(names)
        self._heard_s |= dict.fromkeys(self._returning, now_s)

    def heard(self, name: str, now_s: float) -> bool:
        """False for somebody who has not joined, or left."""
        if name not in self._heard_s or name in self._returning:
            return False
        self._heard_s[name] = now_s
        return True

    def leave(self, name: str) -> None:
        self._heard_s.pop(name, None)
        self._returning.discard(name)

    def sent(self, name: str, samples: int, now_s: float) -> None:
        self._samples[name] = samples
        self._look(now_s)

    def begin(self, number: int, now_s: float) -> None:
        """The next round; whoever is present takes part."""
        self.number = number
        self._samples.clear()
        self._since_s = None
        self._look(now_s)

    # ---- what follows ---------------------------------------------------------------------------

    def has_sent(self, name: str) -> bool:
        return name in self._samples

    def present(self, now_s: float) -> frozenset[str]:
        gone_s = now_s - self._settings.gone_after_s
        return frozenset(name for name, heard_s in self._heard_s.items() if heard_s > gone_s)

    def seeder(self, now_s: float) -> str:
        """Whose weights the federation starts from: the first who joined and is present."""
        present = self.present(now_s)
        return next((name for name in self._heard_s if name in present), "")

    def useful(self) -> int:
        """Updates that carry something: a participant may have no samples in this round."""
        return sum(samples > 0 for samples in self._samples.values())

    def closes(self, now_s: float) -> bool:
        if self.number == SEED or self.useful() < self._settings.min_participants:
            return False
        if self._since_s is not None and now_s >= self._since_s + self._settings.deadline_s:
            return True
        is_gathered = self._is_gathered or now_s >= self._gathers_until_s
        return is_gathered and not self.awaited(now_s)

    def lack(self, now_s: float) -> str:
        """Why this round does not close although nobody present is to send, in words, or ""."""
        if self.awaited(now_s) or self.closes(now_s):
            return ""
        settings, present = self._settings, len(self.present(now_s))
        return (
            f"{present} participants are present and {self.useful()} sent an update with samples; "
            f"expected are {settings.expected_participants}, at least {settings.min_participants}"
        )

    def awaited(self, now_s: float) -> frozenset[str]:
        present = self.present(now_s)
        return (present - self._samples.keys()) | (present & self._returning)

    def _look(self, now_s: float) -> None:
        known = len(self.present(now_s) | self._samples.keys())
        if known >= self._settings.expected_participants:
            self._is_gathered = True
        if self._since_s is None and known >= self._settings.min_participants:
            self._since_s = now_s
