"""An object is written seldom while many are, and nobody waits while few are."""

import asyncio

import pytest

from common import wire
from edgeai.errors import Unavailable
from edgeai.ids import NodeName, WorkerName
from globalmanager.edge.sessions.inbox import InboxLimits
from tests.globalmanager.edge.sessions.test_inbox import Office, Sender, office, report
from tests.globalmanager.edge.world import assignment, key, uid
from tests.support.waiting import async_eventually

pytestmark = pytest.mark.looptime
LIMITS = InboxLimits()
MANY = int(LIMITS.writes_per_s) + 20


async def test_one_object_pauses_for_a_moment_and_the_last_of_many_for_the_longest_time() -> None:
    async def pause_after(others: int) -> float:
        loop = asyncio.get_running_loop()
        async with office(LIMITS) as o:
            sender = Sender(NodeName("node-0"))
            for n in range(others + 1):
                o.desired.assign(key(n), {sender.node: assignment(n, workers=("w", "v"))})
                o.statuses.by_uid[uid(n)] = {}
                o.inbox.offer(sender, report(1, n=n))
            await asyncio.sleep(0.001)
            began_s = loop.time()
            o.inbox.offer(sender, report(2, n=others))
            await async_eventually("the write", lambda: o.inbox.depth == 0, poll_s=0.01)
            return loop.time() - began_s

    assert await pause_after(0) < LIMITS.pause_s / 2
    assert await pause_after(MANY) == pytest.approx(LIMITS.pause_s, rel=0.5)


async def test_reports_of_a_thousand_workers_are_few_writes_and_leave_nothing_behind() -> None:
    workers = tuple(f"w{number}" for number in range(1000))
    async with office(LIMITS) as o:
        sender = Sender(NodeName("node-0"))
        o.desired.assign(key(), {sender.node: assignment(workers=workers)})
        for number, worker in enumerate(workers):
            o.inbox.offer(sender, report(number, worker=worker))
            if number % 100 == 0:
                await asyncio.sleep(0.001)
        await asyncio.sleep(2 * LIMITS.pause_s)
        assert len(sender.acks) == len(workers)
        assert len(o.statuses.calls) <= 3
        assert sum(count for _, count in o.statuses.calls) == len(workers)
        assert not o.inbox._mailboxes


async def test_the_reports_of_one_write_are_bounded_in_bytes_and_ends_go_first() -> None:
    limits = InboxLimits(write_bytes=1000)
    async with office(limits) as o:
        sender = Sender(NodeName("node-0"))
        workers = tuple(f"w{number}" for number in range(100))
        o.desired.assign(key(), {sender.node: assignment(workers=workers)})
        for number, worker in enumerate(workers):
            o.inbox.offer(sender, report(number, worker=worker))
        ended = wire.pack(wire.ReportBody(phase="inference", status="completed"))
        o.inbox.offer(sender, report(100, worker="w99", body=ended))
        await asyncio.sleep(0.001)
        assert o.statuses.writes[0] == (uid(), "w99")
        assert len(o.statuses.writes) < 50
        await asyncio.sleep(10 * limits.pause_s)
        assert len(sender.acks) == 101


async def test_many_objects_are_written_once_a_second_with_their_newest_value() -> None:
    async with office(InboxLimits()) as o:
        sender = Sender(NodeName("node-0"))
        for n in range(MANY):
            o.desired.assign(key(n), {sender.node: assignment(n, workers=("w", "v"))})
            o.statuses.by_uid[uid(n)] = {}
        for value in range(40):  # four seconds
            for n in range(MANY):
                o.inbox.offer(sender, report(value, n=n))
            await asyncio.sleep(0.1)
        writes = o.statuses.writes.count((uid(5), WorkerName("w")))
        assert 4 <= writes <= 6
        await asyncio.sleep(2 * LIMITS.pause_s)
        assert o.inbox.depth == 0
        assert {str(o.state(n=n)) for n in range(MANY)} == {str(o.state(n=5))}
        assert "39" in str(o.state(n=5))


async def test_the_end_of_a_worker_waits_for_no_pause() -> None:
    async with office(InboxLimits()) as o:
        sender = Sender(NodeName("node-0"))
        for n in range(MANY):
            o.desired.assign(key(n), {sender.node: assignment(n, workers=("w", "v"))})
            o.statuses.by_uid[uid(n)] = {}
            o.inbox.offer(sender, report(1, n=n))
        await asyncio.sleep(0.01)
        last = MANY - 1
        o.inbox.offer(sender, report(2, n=last))
        o.inbox.offer(sender, report(3, n=last, worker="v"))
        await asyncio.sleep(0.01)
        assert o.statuses.writes.count((uid(last), WorkerName("w"))) == 1
        ended = wire.pack(wire.ReportBody(phase="inference", status="completed"))
        o.inbox.offer(sender, report(4, n=last, body=ended))
        await asyncio.sleep(0.01)
        assert "completed" in str(o.state(n=last))
        assert "3" in str(o.state("v", n=last)), "the same write takes what waits for the pause"


SLICES = 4


def sliced(o: Office, sender: Sender) -> list[str]:
    """The workers of an object whose entries are in slices."""
    workers = [f"w{number}" for number in range(40)]
    o.statuses.slices = {WorkerName(name): f"s{n % SLICES}" for n, name in enumerate(workers)}
    o.desired.assign(key(), {sender.node: assignment(workers=tuple(workers))})
    return workers


@pytest.mark.parametrize(("status", "most_per_s"), [("running", 0.5), ("completed", 1.0)])
async def test_slices_are_written_seldom_also_when_workers_end(
    status: wire.WorkerStatus, most_per_s: float
) -> None:
    async with office(InboxLimits()) as o:
        sender = Sender(NodeName("node-0"))
        workers = sliced(o, sender)
        for number in range(400):  # forty seconds
            body = wire.pack(wire.ReportBody(phase="inference", status=status))
            o.inbox.offer(sender, report(number, worker=workers[number % 40], body=body))
            await asyncio.sleep(0.1)
        assert len(o.statuses.calls) <= 40 * most_per_s + SLICES
        await asyncio.sleep(10)
        assert len(sender.acks) == 400


async def test_a_slice_that_cannot_be_written_holds_no_acknowledgement_of_another() -> None:
    async with office(InboxLimits()) as o:
        sender = Sender(NodeName("node-0"))
        workers = sliced(o, sender)
        o.statuses.fail = [Unavailable("no answer")]
        for number in range(SLICES):
            o.inbox.offer(sender, report(number, worker=workers[number]))
        await asyncio.sleep(0.001)
        assert len(sender.acks) == SLICES - 1
        await asyncio.sleep(10)
        assert len(sender.acks) == SLICES
