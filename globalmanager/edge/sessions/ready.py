"""The keys of reports that may be written now, in two lanes: ends of workers come first."""

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Ready(Generic[K]):
    """A queue that holds each key once. Within a lane, the key that waits longest comes first."""

    def __init__(self) -> None:
        self._urgent: dict[K, None] = {}
        self._usual: dict[K, None] = {}
        self._count = asyncio.Semaphore(0)  # number of keys

    def put(self, key: K) -> None:
        if key not in self._urgent and key not in self._usual:
            self._usual[key] = None
            self._count.release()

    def hasten(self, key: K) -> None:
        """Let the key pass the usual ones. A key that is not in the queue stays out."""
        if key in self._usual:
            del self._usual[key]
            self._urgent[key] = None

    async def get(self) -> K:
        """Wait for a key, and take the first one."""
        await self._count.acquire()
        lane = self._urgent or self._usual
        key = next(iter(lane))
        del lane[key]
        return key
