"""A flag that one task waits for. A session has three of them, and thousands of sessions would need
megabytes for the empty queues of waiting tasks in asyncio.Event, 760 bytes each.
"""

import asyncio


class Flag:
    """Like asyncio.Event, but only one task at a time may wait."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self, *, is_set: bool) -> None:
        self._is_set = is_set
        self._waiter: asyncio.Future[None] | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> None:
        """Wait until the flag is set. Returns also when the flag was cleared again meanwhile."""
        if self._is_set:
            return
        if self._waiter is not None:
            raise RuntimeError("another task waits for this flag")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
