"""Holds back the newest reports of workers that report often, so that few frames say the same.

While a report of a worker is not acknowledged yet, the cloud is busy and will write only the newest
report. So further reports of this worker leave the node at least GAP_S after each other. Without
this rule, a worker that reports ten times a second would have sent its window full of values that
nobody reads, and its newest value would then wait at the node.
"""

import heapq
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

GAP_S: Final = 0.3


class Pacing(Generic[K, V]):
    """The newest value of each key that must wait, and the time of the key's last value."""

    def __init__(self) -> None:
        self._sent_at: dict[K, float] = {}  # keys with a value that is not acknowledged
        self._values: dict[K, V] = {}
        # (time at which the value may be sent, number, key); also of values that were released
        self._due: list[tuple[float, int, K]] = []
        self._number = 0  # so that the heap compares no keys

    def hold(self, key: K, value: V) -> bool:
        """Returns: whether the value, in place of an older one, must wait"""
        sent_at = self._sent_at.get(key)
        if sent_at is None:
            return False
        if key not in self._values:
            self._number += 1
            heapq.heappush(self._due, (sent_at + GAP_S, self._number, key))
        self._values[key] = value
        return True

    def release(self, key: K) -> V | None:
        """Take the value of the key, if it waits."""
        return self._values.pop(key, None)

    def sent(self, key: K, now: float) -> None:
        """Note that a value of the key was sent."""
        self._sent_at[key] = now

    def acknowledged(self, key: K) -> None:
        """Note that every value of the key that was sent is acknowledged."""
        self._sent_at.pop(key, None)

    def take(self, now: float) -> list[tuple[K, V]]:
        """Take the values that need not wait any longer."""
        values = []
        while self._due and self._due[0][0] <= now:
            _, _, key = heapq.heappop(self._due)
            if key in self._values and self._is_due(key, now):
                values.append((key, self._values.pop(key)))
        return values

    def next_at(self) -> float | None:
        """When `take` may have something to give. None: nothing waits."""
        while self._due and self._due[0][2] not in self._values:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def _is_due(self, key: K, now: float) -> bool:
        """False for an entry of the heap from before a release, when a later entry follows."""
        return self._sent_at.get(key, now - GAP_S) + GAP_S <= now
