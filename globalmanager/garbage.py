"""Moves Python's full garbage collections into seconds in which the GlobalManager has little to do.

A full collection looks at every object of the process, and nothing else runs meanwhile. With 500
sessions and 500 jobs it takes 0.1 s. Python starts a full collection after a number of new objects,
so it starts one when the GlobalManager is busiest. Then assignments and heartbeats wait. Only
objects in reference cycles need a collection. Nearly all objects of a cache are in no cycle.
"""

import asyncio
import gc
import time
from collections.abc import Callable
from typing import Final

_NEVER: Final = 1_000_000_000
_WINDOW_S: Final = 1.0
# Largest part of the time that goes to full collections. With 10,000 sessions one takes 0.6 s.
_SHARE: Final = 0.005


async def collect_when_quiet(
    *,
    every_s: float = 60.0,
    latest_s: float = 120.0,
    quiet_share: float = 0.1,
    cpu_s: Callable[[], float] = time.process_time,
) -> None:
    """Run full collections in quiet moments until cancelled; Python collects itself after that.

    Args:
        every_s: shortest time between two full collections, in seconds; longer after a collection
            that took more than _SHARE of this time
        latest_s: longest time between two full collections, in seconds, also when the process is
            busy
        quiet_share: largest part of one processor that the process uses in a quiet second
        cpu_s: returns the processor time that the process has used, in seconds
    """
    clock = asyncio.get_running_loop().time
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], _NEVER)
    took_s = 0.0
    try:
        while True:
            pause_s = max(every_s, took_s / _SHARE)
            latest_at = clock() + max(latest_s, pause_s)
            await asyncio.sleep(pause_s)
            is_quiet = False
            while not is_quiet and clock() < latest_at:
                used_s = cpu_s()
                await asyncio.sleep(_WINDOW_S)
                is_quiet = cpu_s() - used_s < quiet_share * _WINDOW_S
            began_s = cpu_s()
            gc.collect()
            took_s = cpu_s() - began_s
    finally:
        gc.set_threshold(*before)
