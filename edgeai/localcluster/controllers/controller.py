"""The queue and the loop of every controller. A key whose reconcile fails is tried again later.

A key says only that its object may have changed. The controller then reads the whole state. The
queue holds each key at most once, so the number of objects limits the queue. Not thread-safe.
"""

import abc
import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

from common.logs import get_logger
from edgeai.localcluster.objects.store import Change, Store

log = get_logger(__name__)

K = TypeVar("K", bound=Hashable)

RETRY_FIRST_S = 0.1
RETRY_MAX_S = 10.0


class Controller(abc.ABC, Generic[K]):
    """Follows the store, and reconciles one key after the other."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = name
        self._store = store
        self._keys: dict[K, None] = {}  # an ordered set
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}  # failures since the last success
        self._wake = asyncio.Event()

    @abc.abstractmethod
    def _add_all(self) -> None:
        """Add the keys of the objects that exist at the start."""

    @abc.abstractmethod
    def _changed(self, change: Change) -> None:
        """Add the keys that a change concerns."""

    @abc.abstractmethod
    async def _reconcile(self, key: K) -> float | None:
        """Returns: seconds until the key is added again; None: only the next change adds it"""

    async def run(self) -> None:
        unlisten = self._store.listen(self._changed)
        try:
            self._add_all()
            while True:
                await self._wake.wait()
                while self._keys:
                    key = next(iter(self._keys))
                    del self._keys[key]
                    await self._try(key)
                self._wake.clear()
        finally:
            unlisten()
            for timer in self._timers.values():
                timer.cancel()

    def _add(self, key: K) -> None:
        self._keys[key] = None
        self._wake.set()

    async def _try(self, key: K) -> None:
        try:
            again_s = await self._reconcile(key)
        except Exception as error:  # noqa: BLE001 - one bad object must not stop the controller
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            again_s = min(RETRY_MAX_S, RETRY_FIRST_S * 2.0 ** min(failures, 10))
            log.warning("reconcile failed", controller=self.name, key=str(key), error=repr(error))
        else:
            self._failures.pop(key, None)
        if again_s is not None:
            if timer := self._timers.pop(key, None):
                timer.cancel()
            self._timers[key] = asyncio.get_running_loop().call_later(again_s, self._due, key)

    def _due(self, key: K) -> None:
        del self._timers[key]
        self._add(key)
