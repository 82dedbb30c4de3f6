"""Waits for a condition that real sockets and tasks bring about."""

from collections.abc import Callable
from typing import Any

from tests.waiting import PATIENCE_S, async_eventually


async def until(condition: Callable[[], Any], *, timeout_s: float = PATIENCE_S) -> None:
    """Wait until `condition` is true. The traceback of a failure shows the condition.

    `async_eventually` says more when a test can name what it waits for.
    """
    await async_eventually("the condition of this line", condition, timeout_s=timeout_s)
