"""Keyed work queue: a key is worked on by one worker at a time and forgets how often it was added.

The engine adds keys on every change and takes them in N workers. Semantics of client-go's rate
limiting queue. Holds keys only; bounded by the number of distinct keys. One event loop, whose
clock it uses.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from common.backoff import Backoff

K = TypeVar("K", bound=Hashable)


class QueueClosed(Exception):
    """Nothing more comes out of this queue."""


def default_backoff() -> Backoff:
    return Backoff(base_s=0.5, max_s=60.0, floor_s=0.05)


class WorkQueue(Generic[K]):
    """Take with `get`, always followed by `done`.

    Args:
        new_backoff: delays of one key that fails in a row
        rest_s: a key that was worked on is not given out again for so many seconds, so that many
            changes shortly after one another become one piece of work; the first waits for nothing
    """

    def __init__(
        self, *, new_backoff: Callable[[], Backoff] = default_backoff, rest_s: float = 0.0
    ) -> None:
        self._new_backoff = new_backoff
        self._rest_s = rest_s
        self._ready: deque[K] = deque()
        self._dirty: set[K] = set()  # to be worked on (again); a superset of _ready
        self._active: set[K] = set()  # taken and not done, or at rest
        self._delayed: dict[K, asyncio.TimerHandle] = {}
        self._backoffs: dict[K, Backoff] = {}
        self._wake = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        """Keys that could be taken now."""
        return len(self._ready)

    def add(self, key: K) -> None:
        """Have the key worked on; once, however often it is added before it is taken."""
        if self._closed or key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._active:
            self._offer(key)

    def add_after(self, key: K, delay_s: float) -> None:
        """Add the key later; of several delays the earliest counts."""
        if self._closed:
            return
        if delay_s <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_s
        pending = self._delayed.get(key)
        if pending is not None:
            if pending.when() <= due:
                return
            pending.cancel()
        self._delayed[key] = loop.call_at(due, self._come_due, key)

    def retry(self, key: K, *, at_least_s: float = 0.0) -> float:
        """Add the key after its next backoff, which is returned, seconds."""
        backoff = self._backoffs.setdefault(key, self._new_backoff())
        delay_s = backoff.next_s(at_least_s=at_least_s)
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: K) -> None:
        """The key succeeded: its backoff starts anew."""
        self._backoffs.pop(key, None)

    def failures(self, key: K) -> int:
        """How often in a row the key was retried."""
        return self._backoffs[key].failures if key in self._backoffs else 0

    async def get(self) -> K:
        """The key that waited longest; wait for one. Raises: QueueClosed."""
        while not self._ready or self._closed:
            if self._closed:
                raise QueueClosed
            self._wake.clear()
            await self._wake.wait()
        key = self._ready.popleft()
        self._dirty.discard(key)
        self._active.add(key)
        return key

    def done(self, key: K) -> None:
        """The worker is through with the key. If the key was added meanwhile, or is added during
        its rest, the queue gives the key out again after the rest."""
        if self._rest_s and not self._closed:
            asyncio.get_running_loop().call_later(self._rest_s, self._rested, key)
        else:
            self._rested(key)

    def _rested(self, key: K) -> None:
        self._active.discard(key)
        if key in self._dirty and not self._closed:
            self._offer(key)

    def close(self) -> None:
        """Take no more keys and give none: who works finishes, who waits gets QueueClosed."""
        self._closed = True
        for pending in self._delayed.values():
            pending.cancel()
        self._delayed.clear()
        self._ready.clear()
        self._dirty.clear()
        self._wake.set()

    def _come_due(self, key: K) -> None:
        del self._delayed[key]
        self.add(key)

    def _offer(self, key: K) -> None:
        self._ready.append(key)
        self._wake.set()
