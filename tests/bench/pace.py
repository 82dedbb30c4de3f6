"""When a load does what it does."""

import asyncio
import time
from collections.abc import AsyncIterator


async def paced(every_s: float, seconds: float) -> AsyncIterator[int]:
    """0, 1, 2, … each at its time, for `seconds`."""
    begin_s = time.monotonic()
    for number in range(round(seconds / every_s)):
        await asyncio.sleep(max(0.0, begin_s + number * every_s - time.monotonic()))
        yield number
