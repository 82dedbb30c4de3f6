"""Waits for a condition that real sockets and tasks bring about."""

import asyncio
from collections.abc import Callable
from typing import Any


async def until(condition: Callable[[], Any], *, timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - conditions on anything, not one thing's event
            await asyncio.sleep(0.005)
