"""A queue of keys. One worker at a time works on a key, however often the key was added.

The engine adds a key on every change. The engine's workers take the keys. The queue behaves like
client-go's rate limiting queue, but namespaces take turns: the many keys of one tenant delay no key
of another tenant for long. The queue holds only keys, so the number of distinct keys limits its
size. All calls come from one event loop, and the queue uses the clock of this loop.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from common.clock import loop_time
from edgeai.api.resources import ObjectRef
from edgeai.backoff import Backoff
from edgeai.turns import Turns


class _Ready(NamedTuple):
    key: ObjectRef
    since_s: float
    """When the key became ready, by the clock of the event loop."""


class QueueClosed(Exception):
    """The queue is closed and gives out no more keys."""


_retries: Final = partial(Backoff, base_s=0.5, max_s=60.0, floor_s=0.05)


class WorkQueue:
    """A worker takes a key with `get` and must call `done` afterwards.

    Args:
        new_backoff: makes the delays of a key that fails several times in a row
        rest_s: seconds after `done` in which the queue does not give out the same key again. So
            many changes within a short time become one piece of work. The first change does not
            wait
    """

    def __init__(
        self, *, new_backoff: Callable[[], Backoff] = _retries, rest_s: float = 0.0
    ) -> None:
        self._new_backoff = new_backoff
        self._rest_s = rest_s
        self._ready: Turns[_Ready] = Turns()
        self._dirty: set[ObjectRef] = set()  # keys that need work; a superset of _ready
        self._active: set[ObjectRef] = set()  # keys that a worker has, and keys that rest
        self._restless: set[ObjectRef] = set()  # keys that had no rest after their last work
        self._delayed: dict[ObjectRef, asyncio.TimerHandle] = {}
        self._backoffs: dict[ObjectRef, Backoff] = {}
        self._wake = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        """The number of keys that workers could take now."""
        return len(self._ready)

    def oldest_s(self) -> float:
        """Seconds for which the key that waits longest has waited; 0 when none waits."""
        if not self._ready:
            return 0.0
        return loop_time() - min(item.since_s for item in self._ready.heads())

    def waiting(self, namespace: str) -> int:
        """The number of keys of one namespace that workers could take now."""
        return self._ready.waiting(namespace)

    def add(self, key: ObjectRef) -> None:
        """Add a key. A key that is in the queue already stays there once."""
        if self._closed or key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._active:
            self._offer(key)

    def add_after(self, key: ObjectRef, delay_s: float) -> None:
        """Add the key after a delay. When the key has several delays, the shortest delay counts."""
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

    def retry(self, key: ObjectRef, *, at_least_s: float = 0.0) -> float:
        """Add the key after its next backoff. Returns: the backoff in seconds"""
        backoff = self._backoffs.setdefault(key, self._new_backoff())
        delay_s = backoff.next_s(at_least_s=at_least_s)
        self.add_after(key, delay_s)
        return delay_s

    def forget(self, key: ObjectRef) -> None:
        """Reset the backoff of the key, because the key has succeeded."""
        self._backoffs.pop(key, None)

    async def get(self) -> ObjectRef:
        """Take, or wait for, the next key of the namespace whose turn it is. Raises: QueueClosed"""
        while not self._ready or self._closed:
            if self._closed:
                raise QueueClosed
            self._wake.clear()
            await self._wake.wait()
        key = self._ready.pop().key
        self._dirty.discard(key)
        self._active.add(key)
        return key

    def done(self, key: ObjectRef, *, goes_on: bool = False, rest_s: float = 0.0) -> None:
        """Note that the worker has finished with the key. If the key was added meanwhile, or is
        added during its rest, the queue gives the key out again after the rest.

        Args:
            goes_on: whether the key needs no rest now. After work without a rest the key rests in
                any case, so a key that always goes on keeps no worker busy
            rest_s: the least rest of this key now
        """
        if goes_on and key not in self._restless:
            self._restless.add(key)
            self._rested(key)
            return
        self._restless.discard(key)
        if rest_s := max(rest_s, self._rest_s):
            asyncio.get_running_loop().call_later(rest_s, self._rested, key)
        else:
            self._rested(key)

    def _rested(self, key: ObjectRef) -> None:
        self._active.discard(key)
        if key in self._dirty and not self._closed:
            self._offer(key)

    def close(self) -> None:
        """Take and give no more keys. A worker with a key can finish, others get QueueClosed."""
        self._closed = True
        for pending in self._delayed.values():
            pending.cancel()
        self._delayed.clear()
        self._ready.clear()
        self._dirty.clear()
        self._wake.set()

    def _come_due(self, key: ObjectRef) -> None:
        del self._delayed[key]
        self.add(key)

    def _offer(self, key: ObjectRef) -> None:
        self._ready.push(key.namespace, _Ready(key, loop_time()))
        self._wake.set()
