"""The gate that only the leader's writes pass, and only for as long as it surely leads.

The elector opens and closes it; a fenced client sends every write through it. A process that was
frozen finds it shut when it wakes, before it has asked anybody.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

Clock = Callable[[], float]
# Goes on while the machine sleeps; where there is none (not Linux), the one that does not.
_CLOCK_ID: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds on a clock that nobody sets and that does not stop with a suspended machine."""
    return time.clock_gettime(_CLOCK_ID)


class Shut(Exception):
    """What was to pass may not, or not any more."""


class Fence:
    """Shut at first."""

    def __init__(self, clock: Clock = elapsed) -> None:
        self._clock = clock
        self._until = -math.inf
        self._passing: set[asyncio.Timeout] = set()

    def left_s(self) -> float:
        """For how long it stays open, seconds; 0 when it is shut."""
        return max(0.0, self._until - self._clock())

    def open_until(self, until: float) -> None:
        """Let pass until then, on the fence's clock; what is passing may go on until then too."""
        self._until = until
        for deadline in self._passing:
            if not deadline.expired():
                deadline.reschedule(self._when())

    def close(self) -> None:
        """Let nothing pass, and end what is passing."""
        self.open_until(-math.inf)

    @asynccontextmanager
    async def passage(self) -> AsyncIterator[None]:
        """Around what must not outlast the fence: it is cancelled when the fence shuts.

        Raises: Shut
        """
        if self.left_s() <= 0:
            raise Shut
        deadline = asyncio.timeout_at(self._when())
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
            raise

    def _when(self) -> float:
        """When it shuts, in the running loop's time."""
        return asyncio.get_running_loop().time() + self.left_s()
