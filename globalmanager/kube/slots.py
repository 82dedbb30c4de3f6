"""Limits how many requests of one share may be under way at the same time. Called by `client`.

An API server that works on many writes at the same time answers each write later, and also sends
every watch event later. Assignments wait for watch events, so the GlobalManager's own writes must
not overload the server. On a server with busy processors, writes one after the other take no longer
in total than many writes at the same time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """Lets at most `count` requests pass at a time. The other requests wait in their order.

    Args:
        hold_s: seconds after which a request gives its slot to the next request and goes on. Such a
            request may wait for something slow, for example an admission webhook. Other requests
            must not wait for it

    Raises: ValueError when `count` is less than 1
    """

    def __init__(self, count: int, *, hold_s: float = 0.1) -> None:
        if count < 1:
            raise ValueError(f"at least 1 request must be under way, not {count}")
        self._free = asyncio.Semaphore(count)
        self._hold_s = hold_s

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        is_taken = True

        def release() -> None:
            nonlocal is_taken
            if is_taken:
                is_taken = False
                self._free.release()

        timer = loop.call_later(self._hold_s, release)
        try:
            yield
        finally:
            timer.cancel()
            release()
