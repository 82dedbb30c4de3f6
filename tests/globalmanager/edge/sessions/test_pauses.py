"""An object is written seldom while many are, and nobody waits while few are."""

import asyncio

import pytest

from common import wire
from edgeai.ids import NodeName, Uid, WorkerName
from globalmanager.edge.sessions.inbox import InboxLimits
from globalmanager.edge.sessions.pauses import LONGEST_S, WRITES_PER_S, Pauses
from tests.globalmanager.edge.sessions.test_inbox import Sender, office, report
from tests.globalmanager.edge.world import assignment, key, uid

pytestmark = pytest.mark.looptime
MANY = int(WRITES_PER_S) + 20


async def test_one_object_pauses_for_a_moment_and_the_last_of_many_for_the_longest_time() -> None:
    async def pause_after(others: int) -> float:
        loop, resumed = asyncio.get_running_loop(), asyncio.Event()
        pauses: Pauses[str] = Pauses(lambda _: resumed.set())
        for number in range(others):
            pauses.begin(Uid(f"other-{number}"))
        pauses.begin(Uid("u"))
        began_s = loop.time()
        assert pauses.hold(Uid("u"), "w", is_urgent=False)
        await asyncio.wait_for(resumed.wait(), 5)
        return loop.time() - began_s

    assert await pause_after(0) < LONGEST_S / 2
    assert await pause_after(MANY) == pytest.approx(LONGEST_S, rel=0.5)


async def test_what_was_held_is_written_together_and_leaves_nothing_behind() -> None:
    resumed: list[str] = []
    pauses: Pauses[str] = Pauses(resumed.append)
    assert not pauses.hold(Uid("u"), "a", is_urgent=False), "no pause yet"
    pauses.begin(Uid("u"))
    assert [pauses.hold(Uid("u"), name, is_urgent=False) for name in "abc"] == [True] * 3
    assert not pauses.hold(Uid("u"), "d", is_urgent=True)
    assert not pauses.hold(Uid("v"), "e", is_urgent=False), "the pause of another object"
    assert pauses.release(Uid("u"), "b")
    assert not pauses.release(Uid("u"), "b")
    await asyncio.sleep(LONGEST_S)
    assert resumed == ["a", "c"]
    pauses.begin(Uid("u"))
    assert [pauses.hold(Uid("u"), name, is_urgent=False) for name in "ac"] == [False, False]
    await asyncio.sleep(LONGEST_S)
    assert not pauses._queues
    assert not pauses._released


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
        await asyncio.sleep(2 * LONGEST_S)
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
        assert o.state("v", n=last) is None
        await asyncio.sleep(LONGEST_S)
        assert "3" in str(o.state("v", n=last))
