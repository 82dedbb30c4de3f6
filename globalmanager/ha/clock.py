"""The clock by which replicas, sessions and reigns age."""

import time
from collections.abc import Callable
from typing import Final

Clock = Callable[[], float]
# CLOCK_BOOTTIME goes on while the machine sleeps. Only Linux has this clock.
_CLOCK_ID: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds of a clock that nobody can adjust and that goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK_ID)
