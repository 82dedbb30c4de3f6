"""The work queue: once per key, one worker per key, delays and backoff; on virtual time."""

import asyncio

import pytest

from edgeai.api.resources import PODS, ObjectRef
from edgeai.backoff import Backoff
from globalmanager.engine.queue import QueueClosed, WorkQueue

pytestmark = pytest.mark.looptime


def pod(path: str) -> ObjectRef:
    """The key of a Pod in namespace "", or in the part before the slash."""
    namespace, _, name = path.rpartition("/")
    return ObjectRef(PODS, namespace, name)


A, B, C = map(pod, "abc")


def now() -> float:
    return asyncio.get_running_loop().time()


def new_queue() -> WorkQueue:
    """Backoffs of 1, 2, 4, 8, 8 … seconds: jitter's upper bound."""
    return WorkQueue(
        new_backoff=lambda: Backoff(base_s=1.0, max_s=8.0, uniform=lambda _low, high: high)
    )


async def test_a_key_added_twice_comes_out_once() -> None:
    queue = new_queue()
    for key in (A, B, A):
        queue.add(key)
    assert [await queue.get(), await queue.get()] == [A, B]
    assert len(queue) == 0


async def test_a_key_in_work_is_not_given_to_a_second_worker() -> None:
    queue = new_queue()
    queue.add(A)
    key = await queue.get()
    queue.add(A)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await queue.get()
    queue.done(key)
    assert await queue.get() == A


async def test_a_key_not_added_again_is_done() -> None:
    queue = new_queue()
    queue.add(A)
    queue.done(await queue.get())
    assert len(queue) == 0


async def test_of_two_delays_the_earlier_counts() -> None:
    queue = new_queue()
    queue.add_after(A, 5.0)
    queue.add_after(A, 2.0)
    queue.add_after(A, 9.0)
    await queue.get()
    assert now() == 2.0
    queue.done(A)
    await asyncio.sleep(20)
    assert len(queue) == 0


async def test_no_delay_is_now() -> None:
    queue = new_queue()
    queue.add_after(A, 0.0)
    assert len(queue) == 1


async def test_retries_back_off_until_forgotten() -> None:
    queue = new_queue()
    delays: list[float] = []
    for _ in range(5):
        started = now()
        queue.retry(A)
        queue.done(await queue.get())
        delays.append(now() - started)
    assert delays == [1, 2, 4, 8, 8]
    queue.forget(A)
    assert queue.retry(A) == 1


async def test_one_key_s_backoff_is_not_another_s() -> None:
    queue = new_queue()
    for _ in range(3):
        queue.retry(A)
    assert queue.retry(B) == 1


async def test_retry_waits_for_as_long_as_the_server_asked() -> None:
    assert new_queue().retry(A, at_least_s=30.0) == 30.0


async def test_who_waits_is_woken_by_an_add() -> None:
    queue = new_queue()
    waiting = asyncio.create_task(queue.get(), name="worker")
    await asyncio.sleep(3)
    queue.add(A)
    assert await waiting == A


async def test_every_waiting_worker_gets_a_key() -> None:
    queue = new_queue()
    async with asyncio.TaskGroup() as workers:
        tasks = [workers.create_task(queue.get(), name=f"worker {n}") for n in range(3)]
        await asyncio.sleep(1)
        for key in (A, B, C):
            queue.add(key)
    assert {task.result() for task in tasks} == {A, B, C}


async def test_a_closed_queue_releases_who_waits_and_takes_no_more() -> None:
    queue = new_queue()
    queue.add(pod("working"))
    working = await queue.get()
    waiting = asyncio.create_task(queue.get(), name="worker")
    queue.add_after(pod("later"), 1.0)
    await asyncio.sleep(0)
    queue.close()
    with pytest.raises(QueueClosed):
        await waiting
    queue.add(pod("more"))
    queue.add_after(pod("more"), 1.0)
    queue.done(working)
    await asyncio.sleep(5)
    assert len(queue) == 0
    with pytest.raises(QueueClosed):
        await queue.get()


async def test_a_cancelled_wait_loses_no_key() -> None:
    queue = new_queue()
    waiting = asyncio.create_task(queue.get(), name="worker")
    await asyncio.sleep(0)
    queue.add(A)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await queue.get() == A


# ---- rest ----


async def test_a_key_rests_after_its_work_and_the_first_change_waits_for_nothing() -> None:
    queue: WorkQueue = WorkQueue(rest_s=0.2)
    queue.add(A)
    assert await queue.get() == A
    assert now() == 0
    queue.add(A)
    queue.done(A)
    queue.add(A)
    queue.add(B)
    assert await queue.get() == B
    assert await queue.get() == A
    assert now() == pytest.approx(0.2)
    queue.done(A)
    await asyncio.sleep(5)
    assert len(queue) == 0, "three changes in a row are one more piece of work"
    queue.add(A)
    assert await queue.get() == A
    assert now() == pytest.approx(5.2)


async def test_a_key_that_is_added_during_its_rest_comes_out_after_it() -> None:
    queue: WorkQueue = WorkQueue(rest_s=0.2)
    queue.add(A)
    queue.done(await queue.get())
    await asyncio.sleep(0.1)
    queue.add(A)
    assert len(queue) == 0
    assert await queue.get() == A
    assert now() == pytest.approx(0.2)


async def test_a_key_that_goes_on_does_not_rest_but_rests_the_next_time() -> None:
    queue: WorkQueue = WorkQueue(rest_s=0.2)
    given_out = []
    queue.add(A)
    for _ in range(5):
        key = await queue.get()
        given_out.append(now())
        queue.add(key)
        queue.done(key, goes_on=True)
    assert given_out == pytest.approx([0, 0, 0.2, 0.2, 0.4])


async def test_a_closed_queue_gives_nothing_out_after_a_rest() -> None:
    queue: WorkQueue = WorkQueue(rest_s=0.2)
    queue.add(A)
    await queue.get()
    queue.add(A)
    queue.done(A)
    queue.close()
    await asyncio.sleep(1)
    assert len(queue) == 0


async def test_the_age_of_a_queue_is_that_of_the_key_that_comes_next() -> None:
    queue = new_queue()
    assert queue.oldest_s() == 0.0
    queue.add(A)
    await asyncio.sleep(3)
    queue.add(B)
    queue.add(A)  # it is there already, and keeps its time
    await asyncio.sleep(2)
    assert queue.oldest_s() == 5.0
    queue.done(await queue.get())
    assert queue.oldest_s() == 2.0
    await queue.get()
    assert queue.oldest_s() == 0.0


# ---- namespaces take turns ----


async def test_the_keys_of_one_namespace_delay_those_of_another_by_one_key() -> None:
    queue = new_queue()
    for number in range(1000):
        queue.add(pod(f"many/{number}"))
    for number in range(3):
        queue.add(pod(f"few/{number}"))
    first = [await queue.get() for _ in range(7)]
    order = ["many/0", "few/0", "many/1", "few/1", "many/2", "few/2", "many/3"]
    assert first == list(map(pod, order))


async def test_the_age_of_a_queue_is_that_of_its_oldest_key_in_any_namespace() -> None:
    queue = new_queue()
    for path in ("a/0", "a/1", "b/0"):
        queue.add(pod(path))
    await asyncio.sleep(3)
    queue.add(pod("b/1"))
    assert await queue.get() == pod("a/0")
    assert await queue.get() == pod("b/0")
    assert queue.oldest_s() == 3.0
    assert queue.waiting("a") == queue.waiting("b") == 1
    assert queue.waiting("c") == 0
