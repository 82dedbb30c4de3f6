"""A flag for one task, instead of asyncio.Event."""

import asyncio

import pytest

from globalmanager.edge.sessions.flag import Flag
from tests.support.waiting import async_eventually


async def test_a_task_waits_until_the_flag_is_set() -> None:
    flag = Flag(is_set=False)
    waiting = asyncio.create_task(flag.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    flag.set()
    flag.set()
    await async_eventually("the end of the wait", waiting.done)
    assert flag.is_set()
    await flag.wait()


async def test_a_flag_that_is_cleared_again_at_once_still_ends_the_wait() -> None:
    flag = Flag(is_set=False)
    waiting = asyncio.create_task(flag.wait())
    await asyncio.sleep(0)
    flag.set()
    flag.clear()
    await async_eventually("the end of the wait", waiting.done)
    assert not flag.is_set()


async def test_after_a_cancelled_wait_another_task_may_wait() -> None:
    flag = Flag(is_set=False)
    cancelled = asyncio.create_task(flag.wait())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="another task"):
        await flag.wait()
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    waiting = asyncio.create_task(flag.wait())
    await asyncio.sleep(0)
    flag.set()
    await async_eventually("the end of the wait", waiting.done)
