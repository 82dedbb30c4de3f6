"""The task group: what it raises, and that it leaves no trace in the task that waited."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from common.tasks import TaskGroup


async def fail(event: asyncio.Event | None = None) -> None:
    if event is not None:
        await event.wait()
    raise ValueError("of a task")


async def group_of(*coroutines: Coroutine[Any, Any, Any]) -> None:
    async with TaskGroup() as group:
        for coroutine in coroutines:
            group.create_task(coroutine)


async def failed_group() -> None:
    with pytest.raises(ExceptionGroup):
        await group_of(fail(), asyncio.Event().wait())


async def test_a_timeout_after_a_failed_group_is_a_timeout() -> None:
    await failed_group()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()


async def test_a_group_that_fails_while_its_body_runs_raises_that() -> None:
    async def body() -> None:
        async with TaskGroup() as group:
            group.create_task(fail())
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup):
        await body()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_failed_group_leaves_no_request_behind() -> None:
    await failed_group()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_in_the_moment_of_a_failure_is_not_lost() -> None:
    may_fail = asyncio.Event()

    waiting = asyncio.create_task(group_of(fail(may_fail)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    may_fail.set()
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert waiting.cancelled()


async def test_cancelling_the_waiting_task_cancels_the_group() -> None:
    ended = asyncio.Event()

    async def runs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = asyncio.create_task(group_of(runs()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended.is_set()


async def test_all_failures_are_told() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await group_of(fail(), fail())
    assert len(caught.value.exceptions) == 2
