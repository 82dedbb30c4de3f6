"""Waiting returns what was found, and says what was not."""

import asyncio
import itertools

import pytest

from tests.support.waiting import NeverHappened, async_eventually, eventually


def test_what_was_found_is_returned() -> None:
    numbers = itertools.count()
    assert eventually("the third number", lambda: next(numbers) // 2, poll_s=0) == 1


def test_what_was_waited_for_and_found_last_is_said() -> None:
    with pytest.raises(NeverHappened, match="waited 0 s for a session; found last: None"):
        eventually("a session", lambda: None, timeout_s=0)


def test_a_check_that_asserts_tells_what_there_is_instead() -> None:
    def check() -> bool:
        raise AssertionError("status is Pending")

    with pytest.raises(NeverHappened, match="for phase Running; found last: status is Pending"):
        eventually("phase Running", check, timeout_s=0)


def test_another_error_ends_the_wait() -> None:
    with pytest.raises(ZeroDivisionError):
        eventually("a quotient", lambda: 1 // 0)


def test_a_function_that_was_not_called_is_nothing_that_was_found() -> None:
    with pytest.raises(
        TypeError, match="the check for a start is always true: it returns <built-in method"
    ):
        eventually("a start", lambda: [].append)


async def test_nor_is_a_function_that_was_not_called_on_the_event_loop() -> None:
    with pytest.raises(TypeError, match="the check for a start is always true"):
        await async_eventually("a start", lambda: [].append)


@pytest.mark.looptime
async def test_the_loops_clock_counts() -> None:
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(NeverHappened, match="waited 3600 s for the end; found last: False"):
        await async_eventually("the end", lambda: False, timeout_s=3600, poll_s=60)
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(3600)


async def test_a_check_may_be_a_coroutine() -> None:
    async def check() -> str:
        await asyncio.sleep(0)
        return "found"

    assert await async_eventually("it", check) == "found"
