"""Limits how many requests of one share may be under way at the same time.

An API server that works on many writes at the same time answers each write later, and also sends
every watch event later. Assignments wait for watch events, so the GlobalManager's own writes must
not overload the server. On a server with busy processors, writes one after the other take no longer
in total than many writes at the same time. While assignments change, the requests also pause:
another change most likely follows, and then neither the server nor this process is busy with a
write. The requests of plans also leave the server to the reports of edges while reports wait.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from edgeai.turns import Turns


class Slots:
    """Lets at most `count` requests pass at a time in busy times, else at most `calm`.

    Times are busy while assignments change, and while requests wait in `before`.

    The namespaces take turns. In its turn a namespace passes its oldest waiting request. So a
    namespace with many slow requests delays a request of another namespace by two requests at most:
    by the request under way, and by the request of the next turn.

    Args:
        calm: used when `calm_s` seconds have passed without a change of an assignment
        before: the slots of requests that are more urgent
        hold_s: seconds after which a request gives its slot to the next request and goes on. It may
            wait for something slow, for example an admission webhook, and others must not

    Raises: ValueError when `count` is less than 1
    """

    def __init__(
        self,
        count: int,
        *,
        calm: int = 1,
        before: "Slots | None" = None,
        hold_s: float = 0.1,
        pause_s: float = 0.018,
        calm_s: float = 1.0,
    ) -> None:
        if count < 1:
            raise ValueError(f"at least 1 request must be under way, not {count}")
        self._count = count
        self._calm = max(count, calm)
        self._before = before
        self._hold_s = hold_s
        self._pause_s = pause_s
        self._calm_s = calm_s
        self._changed_at = -math.inf  # when an assignment changed
        self._under_way = 0
        self._calming: asyncio.TimerHandle | None = None
        self._queue = Turns[asyncio.Future[None]]()

    def make_way(self) -> None:
        """Note that an assignment has changed: let no request begin for `pause_s`."""
        loop = asyncio.get_running_loop()
        self._changed_at = loop.time()
        if self._calming is None:
            self._calming = loop.call_later(self._calm_s, self._calm_down)

    def _calm_down(self) -> None:
        """Let more requests pass, unless an assignment has changed meanwhile."""
        loop = asyncio.get_running_loop()
        calm_at = self._changed_at + self._calm_s
        is_calm = calm_at <= loop.time()
        self._calming = None if is_calm else loop.call_at(calm_at, self._calm_down)
        self._give()

    def _has_room(self) -> bool:
        # Each end of a request looks again, so nobody needs to tell that `before` has become empty.
        has_urgent = self._before is not None and bool(self._before._queue)
        is_busy = has_urgent or self._calming is not None
        return self._under_way < (self._count if is_busy else self._calm)

    @asynccontextmanager
    async def taken(self, namespace: str) -> AsyncIterator[Callable[[], None]]:
        """Hold a slot. Gives a function that the caller must call immediately before it sends its
        request, because then the `hold_s` seconds begin.
        """
        await self._acquire(namespace)
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle | None = None
        is_taken = True

        def release() -> None:
            nonlocal is_taken
            if is_taken:
                is_taken = False
                self._release()

        def start() -> None:
            nonlocal timer
            timer = loop.call_later(self._hold_s, release)

        try:
            if (pause_s := self._changed_at + self._pause_s - loop.time()) > 0:
                await asyncio.sleep(pause_s)
            yield start
        finally:
            if timer is not None:
                timer.cancel()
            release()

    async def _acquire(self, namespace: str) -> None:
        if self._has_room():
            self._under_way += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.push(namespace, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the slot was given to this request before the cancellation
                self._release()
            raise

    def _release(self) -> None:
        self._under_way -= 1
        self._give()

    def _give(self) -> None:
        """Give each free slot to the first request of the next namespace."""
        while self._queue and self._has_room():
            turn = self._queue.pop()
            if not turn.done():
                self._under_way += 1
                turn.set_result(None)
