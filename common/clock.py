"""The clock of one process. Components take it as an argument; tests pass one that stands still."""

import asyncio
import time
from datetime import datetime
from typing import Final

from edgeai import times

# CLOCK_BOOTTIME goes on while the machine sleeps. Only Linux has this clock.
_CLOCK_ID: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock:
    def elapsed(self) -> float:
        """Seconds of a clock that nobody can adjust and that goes on while the machine sleeps."""
        return time.clock_gettime(_CLOCK_ID)

    def utcnow(self) -> datetime:
        """The time of day, for objects of the API."""
        return times.utc_now()

    def processor(self) -> float:
        """Seconds of processor time of the calling thread."""
        return time.thread_time()


class LoopClock(Clock):
    """Its seconds are those of the running event loop, which sleeps with the machine."""

    def elapsed(self) -> float:
        return asyncio.get_running_loop().time()


SYSTEM_CLOCK: Final = Clock()


def loop_time() -> float:
    """Seconds of the clock of the running event loop."""
    return asyncio.get_running_loop().time()
