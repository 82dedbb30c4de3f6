"""Latest value per key on its way to a peer: coalesced, and bounded in all and for each key.

Both ends of the channel use it: the GM for assignments of a node, the LC for reports of its
workers. A value that waits is replaced by a newer one of its key, so what waits is bounded by
the number of keys and a slow peer gets the newest state, not the history.
"""

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Sent(NamedTuple, Generic[K, V]):
    """What went out under a sequence number."""

    key: K
    value: V


class SendWindow(Generic[K, V]):
    """At most `size` values unacknowledged at a time, and of one key at most `per_key`; sequence
    numbers count from 1."""

    def __init__(self, size: int, *, per_key: int = 1) -> None:
        self._size = size
        self._per_key = per_key
        self._waiting: dict[K, V] = {}  # in the order of first waiting
        self._unacknowledged: dict[int, Sent[K, V]] = {}
        self._in_flight: dict[K, dict[int, V]] = {}  # of _unacknowledged, by key and number
        self._last_seq = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def unacknowledged(self) -> int:
        return len(self._unacknowledged)

    def next_seq(self) -> int:
        """A number for a frame that is not a value (Synced) but is acknowledged like one."""
        self._last_seq += 1
        return self._last_seq

    def put(self, key: K, value: V) -> None:
        self._waiting[key] = value

    def in_flight(self, key: K) -> V | None:
        """What was sent last for `key`, when something of `key` is not acknowledged yet."""
        sent = self._in_flight.get(key)
        return None if sent is None else sent[max(sent)]

    def discard(self, key: K) -> None:
        """Forget what waits for `key`. A frame that was sent already stays sent."""
        self._waiting.pop(key, None)

    def take(self) -> list[tuple[int, V]]:
        """All that may be sent now, as (seq, value)."""
        ready = [key for key in self._waiting if len(self._in_flight.get(key, ())) < self._per_key]
        return [self._send(key) for key in ready[: self._size - len(self._unacknowledged)]]

    def _send(self, key: K) -> tuple[int, V]:
        value = self._waiting.pop(key)
        seq = self.next_seq()
        self._unacknowledged[seq] = Sent(key, value)
        self._in_flight.setdefault(key, {})[seq] = value
        return seq, value

    def acknowledge(self, seq: int) -> Sent[K, V] | None:
        """What `seq` carried. None: no frame with this number waits for an acknowledgement."""
        sent = self._unacknowledged.pop(seq, None)
        if sent is not None:
            of_key = self._in_flight[sent.key]
            del of_key[seq]
            if not of_key:
                del self._in_flight[sent.key]
        return sent
