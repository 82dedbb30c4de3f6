"""Jobs that name a changed object enter the queue in slices: fair, and the last state too."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import pytest

from common.clock import SYSTEM_CLOCK
from edgeai.api.resources import ObjectRef
from globalmanager.engine import fan_out
from globalmanager.engine.fan_out import PAUSE_S, FanOut
from globalmanager.engine.queue import WorkQueue
from tests.globalmanager.gadgets import PARTS
from tests.globalmanager.objects import GADGETS
from tests.support.clock import Clock

SLICE: Final = 4
MODEL: Final = ObjectRef(PARTS, "many", "model")


def jobs(namespace: str, count: int) -> list[ObjectRef]:
    return [ObjectRef(GADGETS, namespace, f"{number}") for number in range(count)]


class FanOutWork:
    """A fan-out, its queue, and a worker that is as fast as it can be."""

    def __init__(self) -> None:
        self.queue: WorkQueue = WorkQueue()
        self.fan_out = FanOut(self.queue, jobs_per_slice=SLICE, clock=Clock())
        self.taken: list[ObjectRef] = []

    def take_all(self) -> list[ObjectRef]:
        """Slice after slice, each worked on before the next, without a pause."""
        taken = []
        while self.fan_out or self.queue:
            self.fan_out.give_slice()
            while self.queue:
                taken.append(take(self.queue))
        return taken

    async def work(self) -> None:
        while True:
            ref = await self.queue.get()
            self.taken.append(ref)
            self.queue.done(ref)

    async def during(self, seconds: float, *calls: tuple[float, Callable[[], None]]) -> None:
        """Run for `seconds` of virtual time; each call is made at its time."""
        loop = asyncio.get_running_loop()
        for at_s, call in calls:
            loop.call_later(at_s, call)
        tasks = [
            asyncio.create_task(self.fan_out.run(), name="fan-out"),
            asyncio.create_task(self.work(), name="worker"),
        ]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def change(self, source: ObjectRef, members: Iterable[ObjectRef]) -> None:
        self.fan_out.changed(source, members)


def take(queue: WorkQueue) -> ObjectRef:
    """The next key of a queue that has one."""
    getting = queue.get()
    with pytest.raises(StopIteration) as ended:
        getting.send(None)
    ref: ObjectRef = ended.value.value
    queue.done(ref)
    return ref


@pytest.mark.looptime
async def test_a_slice_takes_no_more_jobs_than_it_may_and_all_come_in_order() -> None:
    world = FanOutWork()
    world.change(MODEL, jobs("many", 100))
    world.fan_out.give_slice()
    assert len(world.queue) == SLICE
    assert len(world.fan_out) == 100 - SLICE
    assert world.take_all() == jobs("many", 100)
    assert not world.fan_out


@pytest.mark.looptime
async def test_the_few_jobs_of_a_neighbour_do_not_wait_behind_the_many_of_another() -> None:
    world = FanOutWork()
    world.change(MODEL, jobs("many", 1000))
    world.change(ObjectRef(PARTS, "few", "model"), jobs("few", 3))
    order = world.take_all()
    assert max(order.index(job) for job in jobs("few", 3)) < 2 * 3
    assert Counter(order) == Counter([*jobs("many", 1000), *jobs("few", 3)])


@pytest.mark.looptime
async def test_namespaces_take_turns_also_at_an_object_that_both_name() -> None:
    """A Node is an object of no tenant."""
    world = FanOutWork()
    world.change(ObjectRef(PARTS, "", "node"), [*jobs("many", 1000), *jobs("few", 3)])
    order = world.take_all()
    assert max(order.index(job) for job in jobs("few", 3)) < 2 * 3


@pytest.mark.looptime
async def test_objects_of_one_namespace_take_turns() -> None:
    world = FanOutWork()
    few = [ObjectRef(GADGETS, "many", f"few-{number}") for number in range(3)]
    world.change(MODEL, jobs("many", 1000))
    world.change(ObjectRef(PARTS, "many", "other"), few)
    order = world.take_all()
    assert max(order.index(job) for job in few) < 2 * 3


@pytest.mark.looptime
async def test_a_job_whose_own_object_changed_goes_before_the_fan_out_of_its_namespace() -> None:
    world = FanOutWork()
    direct = ObjectRef(GADGETS, "many", "direct")
    world.change(MODEL, jobs("many", 1000))
    for _ in range(10):
        world.fan_out.give_slice()  # nobody works on them
    world.queue.add(direct)
    assert len(world.queue) == SLICE + 1


@pytest.mark.looptime
async def test_changes_in_a_row_cost_each_job_one_turn_and_one_more_for_the_last_state() -> None:
    world = FanOutWork()
    for _ in range(15):
        world.change(MODEL, jobs("many", 100))
    counts = Counter(world.take_all())
    assert counts == Counter(dict.fromkeys(jobs("many", 100), 2))


@pytest.mark.looptime
async def test_a_change_while_a_round_goes_on_starves_no_job() -> None:
    """15 changes a second, each long before the round has ended."""
    world = FanOutWork()
    many = jobs("many", 1000)
    changes = [(n / 15, lambda: world.change(MODEL, many)) for n in range(15 * 10)]
    await world.during(10.0, *changes)
    counts = Counter(world.taken)
    rounds = 10.0 * SLICE / PAUSE_S / len(many)
    assert max(counts.values()) - min(counts[job] for job in many) <= 1
    assert rounds - 1 <= counts[many[-1]] <= rounds + 1


@pytest.mark.looptime
async def test_a_job_has_its_turn_after_the_last_change() -> None:
    world = FanOutWork()
    many = jobs("many", 50)
    last_s = 0.1
    changes = [(n * last_s / 10, lambda: world.change(MODEL, many)) for n in range(11)]
    mark: list[int] = []
    end = (last_s, lambda: mark.append(len(world.taken)))
    await world.during(2.0, *changes, end)
    assert set(world.taken[mark[0] :]) == set(many)
    assert not world.fan_out


@pytest.mark.looptime
async def test_the_last_change_says_which_jobs_name_the_object() -> None:
    world = FanOutWork()
    world.change(MODEL, jobs("many", 2))
    world.change(MODEL, jobs("many", 100))
    world.change(MODEL, jobs("many", 5))
    counts = Counter(world.take_all())
    assert set(counts) == set(jobs("many", 5))


@pytest.mark.looptime
async def test_an_object_that_no_job_names_costs_nothing() -> None:
    world = FanOutWork()
    world.change(MODEL, [])
    assert not world.fan_out
    assert len(world.fan_out) == 0


@pytest.mark.looptime
async def test_the_first_jobs_wait_for_no_pause_and_later_ones_for_one_each_slice() -> None:
    world = FanOutWork()
    world.change(MODEL, jobs("many", 3 * SLICE))
    await world.during(PAUSE_S / 2)
    assert len(world.taken) == SLICE
    await world.during(PAUSE_S * 1.5)
    assert len(world.taken) == 3 * SLICE


@pytest.mark.looptime
async def test_a_namespace_whose_jobs_are_not_worked_on_misses_its_turn_alone() -> None:
    """As where an admission webhook of this namespace answers late."""
    world = FanOutWork()
    world.change(MODEL, jobs("many", 100))
    world.change(ObjectRef(PARTS, "few", "model"), jobs("few", 100))
    for _ in range(200):
        world.fan_out.give_slice()
        for ref in [take(world.queue) for _ in range(world.queue.waiting("few"))]:
            if ref.namespace == "many":
                world.queue.add(ref)
    assert world.queue.waiting("many") <= SLICE
    assert len(world.fan_out) == 100 - SLICE


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("others", "each_s", "slices"),
    [(0.0, 0.001, 200), (0.4, 0.0, 200), (0.25, 0.0022, 100), (0.0, 0.01, 50), (0.9, 0.01, 20)],
)
async def test_slices_come_seldom_where_there_is_much_to_do(
    others: float, each_s: float, slices: int
) -> None:
    """Args: others, each_s: the part of the loop that other work takes, and the time of one job"""
    world = FanOutWork()
    loop = asyncio.get_running_loop()

    class BusyClock(Clock):
        def processor(self) -> float:
            return others * loop.time() + each_s * len(world.taken)

    world.fan_out = FanOut(world.queue, jobs_per_slice=1, clock=BusyClock())
    world.change(MODEL, jobs("many", 1000))
    await world.during(1.0)
    assert len(world.taken) == pytest.approx(slices, abs=2)


def spin(seconds: float) -> None:
    """Use the processor."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


async def test_long_work_leaves_most_of_the_loop_to_others() -> None:
    """Each job takes 20 ms, as the plan of a job with a hundred pods."""
    each_s, seconds = 0.02, 1.5
    queue: WorkQueue = WorkQueue()
    fan = FanOut(queue, jobs_per_slice=1, clock=SYSTEM_CLOCK)
    fan.changed(MODEL, jobs("many", 1000))
    worked_s = 0.0

    async def work() -> None:
        nonlocal worked_s
        while True:
            ref = await queue.get()
            spin(each_s)  # blocks the loop, as a plan does
            worked_s += each_s
            queue.done(ref)
            await asyncio.sleep(0)

    tasks = [
        asyncio.create_task(fan.run(), name="fan-out"),
        asyncio.create_task(work(), name="worker"),
    ]
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert 0 < worked_s < 0.6 * seconds


def test_many_jobs_are_taken_in_within_a_slice_of_the_loop() -> None:
    world = FanOutWork()
    many = jobs("many", 10_000)
    world.change(MODEL, many)
    times = []
    for _ in range(5):
        began_s = time.process_time()
        world.change(MODEL, many)
        times.append(time.process_time() - began_s)
    assert min(times) < 0.005, f"{fan_out.__name__}: {times}"
