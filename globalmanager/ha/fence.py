"""The fence: only the leader's writes pass, and only while this replica surely leads.

The elector opens and closes the fence. A guarded client (kube.guard) sends every write through it.
A process that was frozen finds the fence shut when it wakes, before it has asked the API.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from globalmanager.kube.guard import Shut

Clock = Callable[[], float]
# CLOCK_BOOTTIME goes on while the machine sleeps. Systems other than Linux do not have it.
_CLOCK_ID: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds on a clock that nobody sets and that does not stop with a suspended machine."""
    return time.clock_gettime(_CLOCK_ID)


class Fence:
    """Shut at first. Args: clock: seconds, monotonic"""

    def __init__(self, clock: Clock = elapsed) -> None:
        self._clock = clock
        self._until = -math.inf  # open until then, on the fence's clock
        self._passing: set[asyncio.Timeout] = set()  # one for each write under way

    @property
    def is_open(self) -> bool:
        """Whether this replica leads."""
        return self.left_s() > 0

    def left_s(self) -> float:
        """Seconds for which the fence stays open; 0 when it is shut."""
        return max(0.0, self._until - self._clock())

    def open_until(self, until: float) -> None:
        """Let writes pass until then, on the fence's clock; writes under way have until then, too.

        A moment in the past shuts the fence.
        """
        self._until = until
        for deadline in self._passing:
            if not deadline.expired():
                deadline.reschedule(self._loop_time())

    def close(self) -> None:
        """Let nothing pass, and end what is passing."""
        self.open_until(-math.inf)

    @asynccontextmanager
    async def passage(self) -> AsyncIterator[None]:
        """Around one write: the write is cancelled when the fence shuts.

        Raises: Shut
        """
        if not self.is_open:
            raise Shut
        deadline = asyncio.timeout_at(self._loop_time())
        try:
            async with deadline:
                self._passing.add(deadline)
                try:
                    yield
                finally:
                    self._passing.discard(deadline)
        except TimeoutError as error:
            if deadline.expired():
                raise Shut from error
            raise  # the write's own deadline, not the fence's

    def _loop_time(self) -> float:
        """When the fence shuts, in the running loop's time."""
        return asyncio.get_running_loop().time() + self.left_s()
