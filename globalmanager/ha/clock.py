"""The clock by which replicas, sessions and reigns age."""

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from edgeai import times

Clock = Callable[[], float]
# CLOCK_BOOTTIME goes on while the machine sleeps. Only Linux has this clock.
_CLOCK_ID: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds of a clock that nobody can adjust and that goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK_ID)


def loop_time() -> float:
    """Seconds of the clock of the running event loop."""
    return asyncio.get_running_loop().time()


class Clocks(NamedTuple):
    """The clocks of one GlobalManager. The event loop has a third one."""

    elapsed: Clock = elapsed
    """Measures how long something lasts."""
    utcnow: times.Clock = times.utc_now
    """Says the time of day, for objects of the API."""
    processor: Clock = time.thread_time
    """Counts the processor time of the event loop's thread."""
