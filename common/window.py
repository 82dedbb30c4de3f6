"""A window that sends the latest value of each key to a peer, and limits unacknowledged values.

Both ends of a session use a SendWindow: the GlobalManager for the assignments of a node, the
LocalController for the reports of its workers. A newer value replaces a waiting value of the same
key. So each key has at most one waiting value, and a slow peer gets the newest state alone.
"""

from collections.abc import Hashable, Iterator
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Sent(NamedTuple, Generic[K, V]):
    """A key and value that were sent with one sequence number."""

    key: K
    value: V


class SendWindow(Generic[K, V]):
    """Sequence numbers begin with 1.

    Args:
        size: most unacknowledged values at a time
        per_key: most of these for one key
        gap_s: least seconds between two values of a key of which the first is not acknowledged. The
            peer then is busy, and will use only the newest value. Without a gap, a worker that
            reports ten times a second would have sent its window full of values that nobody reads,
            and its newest value would then wait at the node
    """

    def __init__(self, size: int, *, per_key: int = 1, gap_s: float = 0.0) -> None:
        self._size = size
        self._per_key = per_key
        self._gap_s = gap_s
        # Waiting values, the key that waits longest first: of keys without an unacknowledged value,
        # and of the other keys. The second dict has at most `size` keys.
        self._first: dict[K, V] = {}
        self._further: dict[K, V] = {}
        self._unacknowledged: dict[int, Sent[K, V]] = {}
        self._in_flight: dict[K, dict[int, V]] = {}  # unacknowledged, by key and seq
        self._sent_at: dict[K, float] = {}  # of the newest unacknowledged value
        self._last_seq = 0

    @property
    def waiting(self) -> int:
        return len(self._first) + len(self._further)

    @property
    def unacknowledged(self) -> int:
        return len(self._unacknowledged)

    def next_seq(self) -> int:
        """The number for a frame without a key (Synced), which is acknowledged like a value."""
        self._last_seq += 1
        return self._last_seq

    def put(self, key: K, value: V) -> None:
        queue = self._further if key in self._in_flight else self._first
        queue[key] = value

    def in_flight(self, key: K) -> V | None:
        """The newest sent value of `key`; None: every sent value of `key` is acknowledged."""
        values = self._in_flight.get(key)
        return None if values is None else values[max(values)]

    def all_in_flight(self) -> Iterator[V]:
        return (sent.value for sent in self._unacknowledged.values())

    def discard(self, key: K) -> None:
        """Forget the waiting value of `key`. A value that was sent already stays sent."""
        self._first.pop(key, None)
        self._further.pop(key, None)

    def next_at(self) -> float | None:
        """When `take` may have something to give again; None: no value waits for a gap."""
        return min((self._sent_at[key] + self._gap_s for key in self._open_keys()), default=None)

    def _open_keys(self) -> Iterator[K]:
        """The keys of further values that may be sent after their gap."""
        return (key for key in self._further if len(self._in_flight[key]) < self._per_key)

    def take(self, now: float) -> list[tuple[int, V]]:
        """Take the values that may be sent now, as (seq, value)."""
        if not self._first and not self._further:
            return []
        # Every acknowledgement leads to a `take`, so the cost must not grow with `waiting`.
        room = self._size - len(self._unacknowledged)
        # Half of it is for first values: keys that are never acknowledged keep out no other key.
        room_for_further = room - len(self._first) - self._size // 2
        first = list(islice(self._first, room))
        further = [key for key in self._open_keys() if self._sent_at[key] + self._gap_s <= now]
        return [
            *(self._send(key, self._first.pop(key), now) for key in first),
            *(
                self._send(key, self._further.pop(key), now)
                for key in further[: max(0, room_for_further)]
            ),
        ]

    def _send(self, key: K, value: V, now: float) -> tuple[int, V]:
        seq = self.next_seq()
        self._sent_at[key] = now
        self._unacknowledged[seq] = Sent(key, value)
        self._in_flight.setdefault(key, {})[seq] = value
        return seq, value

    def on_ack(self, seq: int) -> Sent[K, V] | None:
        """Returns: what was sent with `seq`; None: no frame `seq` waits for an acknowledgement."""
        sent = self._unacknowledged.pop(seq, None)
        if sent is not None:
            of_key = self._in_flight[sent.key]
            del of_key[seq]
            if not of_key:
                del self._in_flight[sent.key], self._sent_at[sent.key]
                if sent.key in self._further:
                    self._first[sent.key] = self._further.pop(sent.key)
        return sent
