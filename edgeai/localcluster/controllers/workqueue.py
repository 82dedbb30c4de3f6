"""The queue and the loop of every controller. A key whose reconcile fails is tried again later.

A key says only that its object may have changed. The controller then reads the whole state. The
queue holds each key at most once, so the number of objects limits the queue. Not thread-safe.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from common.logs import get_logger

log = get_logger(__name__)

K = TypeVar("K", bound=Hashable)

RETRY_FIRST_S = 0.1
RETRY_MAX_S = 10.0


class WorkQueue(Generic[K]):
    """The queue of one controller.

    Args:
        name: name of the controller, for logs
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._keys: dict[K, None] = {}  # an ordered set
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}  # failures since the last success
        self._wake = asyncio.Event()

    def add(self, key: K) -> None:
        self._keys[key] = None
        self._wake.set()

    def add_after(self, key: K, delay_s: float) -> None:
        """Add `key` after `delay_s` seconds. This delay replaces an earlier delay of `key`."""
        self._cancel_timer(key)
        self._timers[key] = asyncio.get_running_loop().call_later(delay_s, self._due, key)

    async def run(self, reconcile: Callable[[K], Awaitable[float | None]]) -> None:
        """Call `reconcile` with one key after the other, until cancelled.

        Args:
            reconcile: returns the seconds until the queue adds the key again; None means that only
                the next change of the object adds the key
        """
        try:
            while True:
                await self._wake.wait()
                while self._keys:
                    key = next(iter(self._keys))
                    del self._keys[key]
                    await self._reconcile(key, reconcile)
                self._wake.clear()
        finally:
            for key in tuple(self._timers):
                self._cancel_timer(key)

    async def _reconcile(self, key: K, reconcile: Callable[[K], Awaitable[float | None]]) -> None:
        try:
            again_s = await reconcile(key)
        except Exception as error:  # noqa: BLE001 - one bad object must not stop the controller
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            again_s = min(RETRY_MAX_S, RETRY_FIRST_S * 2.0 ** min(failures, 10))
            log.warning("reconcile failed", controller=self._name, key=str(key), error=repr(error))
        else:
            self._failures.pop(key, None)
        if again_s is not None:
            self.add_after(key, again_s)

    def _due(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _cancel_timer(self, key: K) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()
