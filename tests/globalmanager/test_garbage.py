"""Full garbage collections wait for a quiet second, and come at last."""

import asyncio
import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from globalmanager.garbage import collect_when_quiet

pytestmark = pytest.mark.looptime


@pytest.fixture(autouse=True)
def own_threshold() -> Iterator[None]:
    """Each test begins and ends with the threshold of the process."""
    before = gc.get_threshold()
    yield
    after = gc.get_threshold()
    gc.set_threshold(*before)
    assert after == before


@contextmanager
def full_collections() -> Iterator[list[float]]:
    """When each one came, seconds of the loop's clock."""
    times: list[float] = []

    def note(phase: str, about: dict[str, Any]) -> None:
        if phase == "start" and about["generation"] == 2:
            times.append(asyncio.get_running_loop().time())

    gc.callbacks.append(note)
    try:
        yield times
    finally:
        gc.callbacks.remove(note)


async def run_for(seconds: float, cpu_s: Iterator[float]) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await collect_when_quiet(
                every_s=60, latest_s=600, quiet_share=0.1, cpu_s=lambda: next(cpu_s)
            )


async def test_a_quiet_process_collects_once_in_each_period() -> None:
    with full_collections() as times:
        await run_for(200, itertools.repeat(0.0))
    assert times == [61, 122, 183]


async def test_a_busy_process_collects_in_its_first_quiet_second() -> None:
    busy_for_100_s = itertools.chain(range(200), itertools.repeat(200))
    with full_collections() as times:
        await run_for(200, map(float, busy_for_100_s))
    assert times == [161]


async def test_a_process_that_is_always_busy_collects_at_the_latest_moment() -> None:
    with full_collections() as times:
        await run_for(1300, map(float, itertools.count()))
    assert times == [600, 1200]


async def test_a_collection_that_takes_a_second_comes_seldom() -> None:
    with full_collections() as times:
        # the calls in a quiet second, and before and after the collection
        await run_for(900, itertools.cycle([0.0, 0.0, 0.0, 1.0]))
    assert times == [61, 262, 463, 664, 865]


async def test_python_collects_nothing_by_itself_meanwhile_and_again_afterwards() -> None:
    before = gc.get_threshold()
    running = asyncio.create_task(collect_when_quiet())
    await asyncio.sleep(0.1)
    with full_collections() as times:
        kept: list[Any] = [[number] for number in range(400_000)]  # Python counts new containers
    assert times == []
    assert len(kept) == 400_000
    assert gc.get_threshold()[:2] == before[:2]
    running.cancel()
    await asyncio.wait([running])
    assert gc.get_threshold() == before
