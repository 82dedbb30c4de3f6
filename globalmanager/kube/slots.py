"""How many requests of one share may be under way at the same time. Called by `client`.

An API server that works on many writes at once answers each of them later, and also sends every
watch event later. Assignments wait for watch events, so the GlobalManager's own writes must not
crowd the server. Where the server's processors are busy, one write after the other takes no longer
in all than many at once.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    """At most `count` requests at a time; the others wait in their order.

    Args:
        hold_s: a request that takes longer gives its slot to the next request and goes on. Such a
            request may wait for something slow, for example an admission webhook, and other
            requests must not wait for the same thing.

    Raises: ValueError: count is less than 1
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
