"""Moves Python's full garbage collections into seconds in which the GlobalManager has little to do.

A full collection looks at every object of the process, and nothing else runs meanwhile: 0.1 s with
500 sessions and 500 jobs. Python starts a full collection after a number of new objects, so when
the GlobalManager is busiest; then assignments and heartbeats wait. Objects in no cycle, as nearly
all of a cache's are, need no collection.
"""

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Final

_NEVER: Final = 1_000_000_000
_WINDOW_S: Final = 1.0


async def collect_when_quiet(
    *,
    every_s: float = 60.0,
    latest_s: float = 600.0,
    quiet_share: float = 0.1,
    cpu_s: Callable[[], float] = time.process_time,
) -> None:
    """Until cancelled; then Python collects by itself again.

    Args:
        every_s: least seconds between two full collections
        latest_s: most seconds between two full collections, however busy the process is
        quiet_share: part of one processor that the process uses at most in a quiet second
        cpu_s: processor time that the process has used
    """
    clock = asyncio.get_running_loop().time
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], _NEVER)
    try:
        while True:
            latest_at = clock() + latest_s
            await asyncio.sleep(every_s)
            is_quiet = False
            while not is_quiet and clock() < latest_at:
                used_s = cpu_s()
                await asyncio.sleep(_WINDOW_S)
                is_quiet = cpu_s() - used_s < quiet_share * _WINDOW_S
            gc.collect()
    finally:
        gc.set_threshold(*before)
