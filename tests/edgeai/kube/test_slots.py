"""Slots bound what is under way at the same time; a slow request gives its slot away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from common.tasks import TaskGroup
from edgeai.kube.slots import Slots

pytestmark = pytest.mark.looptime

HOLD_S = 1.0


class Server:
    """Answers after a while, and counts what it works on."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.started: list[str] = []
        self.ended: list[str] = []

    @asynccontextmanager
    async def works(self) -> AsyncIterator[None]:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            yield
        finally:
            self.now -= 1

    async def ask(self, slots: Slots, name: str, takes_s: float, namespace: str = "") -> None:
        async with slots.taken(namespace) as start, self.works():
            start()
            self.started.append(name)
            await asyncio.sleep(takes_s)
            self.ended.append(name)


def now() -> float:
    return asyncio.get_running_loop().time()


async def ask_all(slots: Slots, *takes_s: float) -> Server:
    server = Server()
    async with TaskGroup() as tasks:
        for number, each_s in enumerate(takes_s):
            tasks.create_task(server.ask(slots, f"r{number}", each_s), name=f"request {number}")
    return server


@pytest.mark.parametrize("count", [1, 3])
async def test_no_more_than_the_count_are_under_way_and_all_in_their_order(count: int) -> None:
    server = await ask_all(Slots(count, hold_s=HOLD_S), *[0.1] * 9)
    assert server.most == count
    assert server.started == [f"r{number}" for number in range(9)]
    assert now() == pytest.approx(0.9 / count)


async def test_a_request_that_waits_for_something_slow_lets_the_others_pass() -> None:
    server = await ask_all(Slots(1, hold_s=HOLD_S), 60.0, 0.1, 0.1)
    assert server.ended == ["r1", "r2", "r0"]


async def test_requests_begin_only_after_the_pause_that_an_assignment_asks_for() -> None:
    slots = Slots(2, hold_s=HOLD_S, pause_s=0.5)
    slots.make_way()
    server = Server()
    asked = asyncio.create_task(server.ask(slots, "asked", 0.1))
    await asyncio.sleep(0.4)
    assert server.started == []
    await asked
    assert now() == pytest.approx(0.6)


async def test_an_endless_stream_of_assignments_delays_a_request_by_one_pause() -> None:
    slots = Slots(1, hold_s=HOLD_S, pause_s=0.5)
    server = Server()
    slots.make_way()
    asked = asyncio.create_task(server.ask(slots, "asked", 0.1))
    for _ in range(4):
        await asyncio.sleep(0.2)
        slots.make_way()
    assert asked.done()


async def test_more_requests_pass_while_no_assignment_changes() -> None:
    server = await ask_all(Slots(1, calm=3, hold_s=HOLD_S), *[0.1] * 9)
    assert server.most == 3
    assert now() == pytest.approx(0.3)


async def test_after_the_last_change_of_an_assignment_waiting_requests_pass_together() -> None:
    slots = Slots(1, calm=3, hold_s=HOLD_S, pause_s=0.0, calm_s=1.0)
    slots.make_way()
    asked = asyncio.create_task(ask_all(slots, *[0.4] * 6))
    await asyncio.sleep(0.5)
    slots.make_way()  # so the calm begins at 1.5 s, when three requests have ended
    server = await asked
    assert server.most == 3
    assert now() == pytest.approx(1.9)


async def test_while_urgent_requests_wait_the_others_pass_one_after_the_other() -> None:
    urgent = Slots(1, hold_s=HOLD_S)
    plans = Slots(1, calm=3, before=urgent, hold_s=HOLD_S)
    reports = asyncio.create_task(ask_all(urgent, 0.5, 0.5, 0.5))
    await asyncio.sleep(0.1)  # the last report begins at 1.0 s, then no report waits
    server = await ask_all(plans, *[0.2] * 11)
    assert server.most == 3
    # One at a time until 1.1 s: five requests. Then six requests, three at a time.
    assert now() == pytest.approx(1.5)
    await reports


async def test_a_calm_that_ends_takes_no_slot_away() -> None:
    slots = Slots(1, calm=3, hold_s=HOLD_S, pause_s=0.0)
    server = Server()
    async with TaskGroup() as tasks:
        for number in range(4):
            tasks.create_task(server.ask(slots, f"r{number}", 0.5), name=f"request {number}")
        await asyncio.sleep(0.1)
        slots.make_way()
        await asyncio.sleep(0.6)
        assert server.started == ["r0", "r1", "r2", "r3"]
        assert server.now == 1


async def test_a_request_that_is_cancelled_in_a_pause_gives_its_slot_back() -> None:
    slots = Slots(1, hold_s=HOLD_S, pause_s=0.5)
    server = Server()
    slots.make_way()
    paused = asyncio.create_task(server.ask(slots, "paused", 0.1))
    await asyncio.sleep(0.1)
    paused.cancel()
    await server.ask(slots, "next", 0.1)
    assert server.ended == ["next"]


async def test_a_slot_that_was_given_away_is_not_given_back_a_second_time() -> None:
    slots = Slots(1, hold_s=HOLD_S)
    await ask_all(slots, 3.0, 3.0, 3.0)
    server = await ask_all(slots, *[0.1] * 5)
    assert server.most == 1


async def test_a_request_that_fails_or_is_cancelled_gives_its_slot_back() -> None:
    slots = Slots(1, hold_s=HOLD_S)
    with pytest.raises(ConnectionError):
        async with slots.taken(""):
            raise ConnectionError
    server = Server()
    under_way = asyncio.create_task(server.ask(slots, "under way", 0.5))
    waiting = asyncio.create_task(server.ask(slots, "waiting", 0.5))
    await asyncio.sleep(0.1)
    for task in (waiting, under_way):
        task.cancel()
    await asyncio.wait([waiting, under_way])
    await server.ask(slots, "last", 0.1)
    assert server.ended == ["last"]
    assert now() == pytest.approx(0.2)


def test_no_slot_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="not 0"):
        Slots(0)


async def test_a_namespace_with_many_slow_requests_delays_another_by_two_requests() -> None:
    slots = Slots(1, hold_s=HOLD_S)
    server = Server()
    async with TaskGroup() as tasks:
        for number in range(100):
            slow = server.ask(slots, f"slow {number}", 60.0, "tenant-a")
            tasks.create_task(slow, name=f"slow request {number}")
        await asyncio.sleep(0.1)
        await server.ask(slots, "quick", 0.1, "tenant-b")
        assert now() == pytest.approx(2 * HOLD_S + 0.1)


async def test_the_time_before_a_request_is_sent_does_not_count() -> None:
    slots = Slots(1, hold_s=HOLD_S)
    async with slots.taken("") as start:
        other = asyncio.create_task(Server().ask(slots, "other", 0.1))
        await asyncio.sleep(60)
        assert not other.done()
        start()
        await asyncio.sleep(HOLD_S + 0.2)
        assert other.done()
