"""The inbox without sockets: coalescing, effect before acknowledgement, bounds."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from common import wire
from edgeai.ids import NodeName, WorkerName
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.desired_sets import DesiredSets
from globalmanager.edge.sessions.inbox import Inbox, InboxLimits, Retry
from tests.globalmanager.edge.world import (
    A,
    B,
    Statuses,
    assignment,
    key,
    report_body,
    serving,
    uid,
)
from tests.support.clock import AheadClock
from tests.support.waiting import async_eventually

WORKERS = ("w", "v")


class Sender:
    """A session that notes what it is told."""

    def __init__(self, node: NodeName = A, ledger_id: str = "ledger-1") -> None:
        self.node = node
        self.ledger_id = ledger_id
        self.is_live = True
        self.replaces: frozenset[str] = frozenset()
        self.acks: list[tuple[int, str]] = []
        self.resumed = 0

    def acknowledge(self, seq: int, *, refusal: str = "") -> None:
        if self.is_live:
            self.acks.append((seq, refusal))

    def resume(self) -> None:
        self.resumed += 1

    def close(self, code: int, reason: str) -> None:
        self.is_live = False


class Office:
    """An inbox with what it stands between."""

    def __init__(self, limits: InboxLimits) -> None:
        self.registry = CollectorRegistry()
        self.statuses = Statuses()
        self.desired = DesiredSets()
        for n in range(3):
            self.desired.assign(key(n), {A: assignment(n, workers=WORKERS)})
            self.statuses.by_uid[uid(n)] = {}
        self.clock = AheadClock()
        self.inbox = Inbox(
            desired=self.desired,
            writer=self.statuses,
            metrics=EdgeMetrics(self.registry),
            limits=limits,
            clock=self.clock,
        )

    def state(self, worker: str = "w", n: int = 0) -> object:
        return self.statuses.by_uid[uid(n)].get(WorkerName(worker))

    def is_writing(self) -> bool:
        return any(mailbox.active for mailbox in self.inbox._mailboxes.values())

    def count(self, outcome: str) -> float:
        labels = {"outcome": outcome}
        return self.registry.get_sample_value("edgeai_edge_reports_total", labels) or 0.0


LIMITS = InboxLimits(writers=2, backoff_base_s=0.001, backoff_max_s=0.002)


@contextlib.asynccontextmanager
async def office(limits: InboxLimits = LIMITS) -> AsyncIterator[Office]:
    made = Office(limits)
    async with serving(made.inbox):
        yield made


def report(
    seq: int, worker: str = "w", n: int = 0, attempt: int = 1, body: bytes | None = None
) -> wire.Report:
    packed = report_body(seen=seq) if body is None else body
    return wire.Report(seq, uid(n), WorkerName(worker), attempt, packed)


def running(seen: int) -> dict[str, object]:
    return {"phase": "inference", "taskInfo": {"seen": seen}}


async def test_a_report_is_acknowledged_once_it_is_written() -> None:
    async with office() as o:
        sender = Sender()
        o.statuses.open.clear()
        assert o.inbox.offer(sender, report(1))
        await asyncio.sleep(0)
        assert (sender.acks, o.inbox.depth) == ([], 1)
        o.statuses.open.set()
        await async_eventually("sender.acks == [(1, '')]", lambda: sender.acks == [(1, "")])
        assert o.state() == running(1)
        assert o.inbox.depth == 0


async def test_reports_that_wait_are_coalesced_and_all_acknowledged() -> None:
    async with office() as o:
        sender = Sender()
        o.statuses.open.clear()
        o.inbox.offer(sender, report(1))
        await async_eventually("a write", o.is_writing)
        for seq in range(2, 10):
            o.inbox.offer(sender, report(seq))
        o.statuses.open.set()
        await async_eventually("len(sender.acks) == 9", lambda: len(sender.acks) == 9)
        assert o.state() == running(9)
        assert len(o.statuses.writes) == 2


async def test_the_age_is_that_of_the_oldest_report_also_after_newer_ones() -> None:
    async with office() as o:

        def age_s() -> float:
            return o.registry.get_sample_value("edgeai_edge_inbox_oldest_seconds") or 0.0

        sender = Sender()
        assert age_s() == 0.0
        o.statuses.open.clear()
        o.inbox.offer(sender, report(1))
        await async_eventually("a write", o.is_writing)
        o.clock.ahead_s = 50.0
        assert age_s() == pytest.approx(50.0, abs=5.0), "a report that is being written waits, too"
        o.inbox.offer(sender, report(2, worker="v"))
        o.statuses.fail = [Retry("api is away"), Retry("api is away")]
        o.clock.ahead_s = 70.0
        o.inbox.offer(sender, report(3))
        o.statuses.open.set()
        await async_eventually("nothing fails any more", lambda: not o.statuses.fail)
        await async_eventually("all is written", lambda: o.inbox.depth == 0)
        assert age_s() == 0.0


async def test_a_report_that_replaces_another_has_its_age() -> None:
    async with office() as o:
        sender = Sender()
        o.statuses.open.clear()
        o.inbox.offer(sender, report(1))
        await async_eventually("a write", o.is_writing)
        o.inbox.offer(sender, report(2))
        o.clock.ahead_s = 50.0
        o.inbox.offer(sender, report(3))
        (waiting,) = o.inbox._mailboxes[uid(), ""].waiting.values()
        assert waiting.since < o.clock.elapsed() + 10.0
        o.statuses.open.set()


async def test_one_that_fails_is_tried_again_and_takes_effect_once() -> None:
    async with office() as o:
        sender = Sender()
        o.statuses.fail = [Retry("api is away"), OSError("broken pipe"), Retry("busy", 0.01)]
        o.inbox.offer(sender, report(1))
        await async_eventually("sender.acks == [(1, '')]", lambda: sender.acks == [(1, "")])
        assert o.statuses.writes == [(uid(), "w")]


async def test_a_report_that_a_newer_session_repeats_may_replace_what_that_session_knows() -> None:
    async with office() as o:
        o.statuses.fail = [Retry("api is away", 0.05)]
        repeated = msgspec.structs.replace(report(1), revision=7)
        o.inbox.offer(Sender(), repeated)
        await async_eventually("not o.statuses.fail", lambda: not o.statuses.fail)
        newer = Sender()
        newer.replaces = frozenset({"lost-ledger"})
        o.inbox.offer(newer, repeated)
        await async_eventually("newer.acks", lambda: newer.acks)
        assert o.statuses.reports[-1].replaces == newer.replaces


async def test_what_waits_to_be_tried_again_is_refused_once_its_worker_has_moved() -> None:
    async with office() as o:
        sender = Sender(A)
        o.statuses.fail = [Retry("api is away", 0.05)]
        o.inbox.offer(sender, report(1))
        await async_eventually("not o.statuses.fail", lambda: not o.statuses.fail)
        o.desired.assign(key(), {B: assignment(workers=WORKERS)})
        await async_eventually("sender.acks", lambda: sender.acks)
        assert sender.acks == [(1, "worker 'w' is not bound to node 'node-0'")]
        assert o.state() is None


async def test_the_report_of_the_present_node_outlasts_one_of_a_former_node_that_waits() -> None:
    """Even where the former one had got further, by its own counting."""
    async with office() as o:
        former, present = Sender(A), Sender(B)
        o.statuses.fail = [Retry("api is away", 0.05)]
        o.inbox.offer(former, report(1, attempt=2))
        await async_eventually("not o.statuses.fail", lambda: not o.statuses.fail)
        o.desired.assign(key(), {B: assignment(workers=WORKERS)})
        o.inbox.offer(present, report(7))
        await async_eventually("present.acks", lambda: present.acks)
        assert present.acks == [(7, "")]
        assert o.state() == running(7)


async def test_a_worker_that_moves_is_told_apart_by_its_node() -> None:
    """As long as it runs on both nodes, neither report replaces the other one."""
    async with office() as o:
        former, present = Sender(A), Sender(B)
        there = assignment(version=2, workers=WORKERS)
        still_here = msgspec.structs.replace(there, former=frozenset({WorkerName("w")}))
        o.desired.assign(key(), {A: still_here, B: there})
        o.statuses.open.clear()
        o.inbox.offer(present, report(7))
        o.inbox.offer(former, report(1))
        o.statuses.open.set()
        await async_eventually("both acks", lambda: present.acks and former.acks)
        assert {
            (each.node, each.is_former, each.generation, each.body.task_info["seen"])
            for each in o.statuses.reports
        } == {(A, True, 2, 1), (B, False, 2, 7)}


@pytest.mark.looptime
async def test_while_it_is_retried_the_newest_is_what_counts() -> None:
    async with office() as o:
        sender = Sender()
        o.statuses.fail = [Retry("busy", after_s=60)]
        o.inbox.offer(sender, report(1))
        await asyncio.sleep(1)
        o.inbox.offer(sender, report(2))
        await asyncio.sleep(60)
        assert sender.acks == [(1, ""), (2, "")]
        assert o.state() == running(2)
        assert len(o.statuses.writes) == 1


@pytest.mark.looptime
async def test_a_report_that_comes_during_a_backoff_waits_for_its_end() -> None:
    async with office() as o:
        sender = Sender()
        o.statuses.fail = [Retry("busy", after_s=60)]
        o.inbox.offer(sender, report(1))
        await asyncio.sleep(1)
        o.inbox.offer(sender, report(2))
        await asyncio.sleep(58)
        assert sender.acks == []


async def test_the_end_of_a_worker_passes_the_reports_that_wait_for_a_writer() -> None:
    async with office(InboxLimits(writers=1)) as o:
        sender = Sender()
        o.statuses.open.clear()
        for n in range(3):
            o.inbox.offer(sender, report(n + 1, n=n))
        await async_eventually("a write", o.is_writing)
        o.inbox.offer(sender, report(4, n=2, body=report_body("completed")))
        o.statuses.open.set()
        await async_eventually("four acknowledgements", lambda: len(sender.acks) == 4)
        assert o.statuses.writes == [(uid(n), "w") for n in (0, 2, 1)]


async def test_the_end_of_a_worker_that_is_being_written_passes_the_others_too() -> None:
    async with office(InboxLimits(writers=1)) as o:
        sender = Sender()
        o.statuses.open.clear()
        for n in range(3):
            o.inbox.offer(sender, report(n + 1, n=n))
        await async_eventually("a write", o.is_writing)
        o.inbox.offer(sender, report(4, n=0, body=report_body("completed")))
        o.statuses.open.set()
        await async_eventually("four acknowledgements", lambda: len(sender.acks) == 4)
        assert o.statuses.writes == [(uid(n), "w") for n in (0, 0, 1, 2)]


async def test_a_write_that_hangs_is_given_up_and_tried_again() -> None:
    limits = InboxLimits(writers=1, write_timeout_s=0.02, backoff_base_s=0.001, backoff_max_s=0.002)
    async with office(limits) as o:
        sender = Sender()
        o.statuses.open.clear()
        o.inbox.offer(sender, report(1))
        await async_eventually("a second try", lambda: len(o.statuses.calls) == 2)
        o.statuses.open.set()
        await async_eventually("sender.acks == [(1, '')]", lambda: sender.acks == [(1, "")])


async def test_one_object_that_cannot_be_written_does_not_hold_up_another() -> None:
    async with office() as o:
        sender = Sender()
        o.statuses.fail = [Retry("conflict", after_s=1000)]
        o.inbox.offer(sender, report(1, n=0))
        await async_eventually("not o.statuses.fail", lambda: not o.statuses.fail)
        o.inbox.offer(sender, report(2, n=1))
        await async_eventually("sender.acks == [(2, '')]", lambda: sender.acks == [(2, "")])


async def test_a_session_that_ended_leaves_its_effect_and_gets_no_answer() -> None:
    async with office() as o:
        sender = Sender()
        o.statuses.open.clear()
        o.inbox.offer(sender, report(1))
        sender.is_live = False
        o.inbox.drop(sender)
        o.statuses.open.set()
        await async_eventually("o.state() == running(1)", lambda: o.state() == running(1))
        await async_eventually("o.inbox.depth == 0", lambda: o.inbox.depth == 0)
        assert sender.acks == []


async def test_sessions_that_come_and_go_do_not_pile_up() -> None:
    async with office() as o:
        o.statuses.fail = [Retry("api is away", after_s=1000)]
        for _ in range(50):
            sender = Sender()
            o.inbox.offer(sender, report(1))
            await asyncio.sleep(0)
            sender.is_live = False
        assert o.inbox.depth <= 2


async def test_an_object_that_is_gone_refuses_its_reports() -> None:
    async with office() as o:
        sender = Sender()
        del o.statuses.by_uid[uid()]
        o.inbox.offer(sender, report(1))
        await async_eventually("sender.acks == [(1, 'gone')]", lambda: sender.acks == [(1, "gone")])
        assert o.count("refused") == 1


MALFORMED = {
    "no msgpack": (b"\xc1", "malformed body"),
    "wrong type": (wire.pack({"status": "asleep"}), "$.status"),
    "wrong field": (wire.pack({"taskInfo": {"seen": "many"}}), "$.taskInfo"),
}


@pytest.mark.parametrize(("body", "path"), MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_body_that_does_not_decode_is_refused_with_its_path(body: bytes, path: str) -> None:
    async with office() as o:
        sender = Sender()
        assert o.inbox.offer(sender, report(1, body=body))
        ((seq, refused),) = sender.acks
        assert seq == 1
        assert path in refused
        assert o.state() is None
        assert o.count("malformed") == 1


FOREIGN = {
    "another node's task": (B, 0, "w"),
    "unknown worker": (A, 0, "x"),
    "unknown uid": (A, 99, "w"),
}


@pytest.mark.parametrize(("node", "n", "worker"), FOREIGN.values(), ids=FOREIGN.keys())
async def test_a_report_for_what_is_not_bound_to_its_sender_changes_nothing(
    node: NodeName, n: int, worker: str
) -> None:
    async with office() as o:
        sender = Sender(node)
        assert o.inbox.offer(sender, report(1, worker, n))
        ((_, refused),) = sender.acks
        assert "not bound" in refused
        assert o.inbox.depth == 0
        assert o.count("foreign") == 1


MERGED = [
    # what waits, what comes, which one takes effect
    ("completed", 1, "running", 1, "completed"),
    ("failed", 2, "lost", 1, "failed"),
    ("completed", 1, "running", 2, "running"),
    ("completed", 1, "failed", 1, "completed"),
    ("failed", 1, "completed", 1, "failed"),
    ("completed", 1, "failed", 2, "failed"),
    ("running", 1, "completed", 1, "completed"),
    ("running", 2, "completed", 1, "running"),
]


@pytest.mark.parametrize(("old", "old_attempt", "new", "new_attempt", "expected"), MERGED)
async def test_what_waits_gives_way_only_to_what_the_status_would_accept_after_it(
    old: wire.WorkerStatus,
    old_attempt: int,
    new: wire.WorkerStatus,
    new_attempt: int,
    expected: str,
) -> None:
    async with office() as o:
        sender = Sender()
        o.statuses.open.clear()
        o.inbox.offer(sender, report(1, attempt=1))
        await async_eventually("a write", o.is_writing)
        o.inbox.offer(sender, report(2, attempt=old_attempt, body=report_body(old)))
        o.inbox.offer(sender, report(3, attempt=new_attempt, body=report_body(new)))
        o.statuses.open.set()
        await async_eventually("len(sender.acks) == 3", lambda: len(sender.acks) == 3)
        state = o.state()
        assert isinstance(state, dict)
        assert state.get("status", "running") == expected


async def test_another_ledgers_report_is_not_held_back_by_a_final_state_that_waits() -> None:
    """The edge lost its ledger: attempts begin again, and of the old one nothing comes any more."""
    async with office() as o:
        old, new = Sender(ledger_id="ledger-1"), Sender(ledger_id="ledger-2")
        o.statuses.open.clear()
        o.inbox.offer(old, report(1))
        await async_eventually("a write", o.is_writing)
        o.inbox.offer(old, report(2, attempt=7, body=report_body("completed")))
        o.inbox.offer(new, report(1, attempt=1, body=report_body(seen=5)))
        o.statuses.open.set()
        await async_eventually("o.inbox.depth == 0", lambda: o.inbox.depth == 0)
        assert o.state() == running(5)


async def test_a_node_with_too_many_reports_is_to_wait_until_there_is_room() -> None:
    limits = InboxLimits(writers=1, reports_per_node=3)
    async with office(limits) as o:
        sender = Sender()
        o.statuses.open.clear()
        assert [o.inbox.offer(sender, report(seq)) for seq in (1, 2, 3)] == [True, True, False]
        o.statuses.open.set()
        await async_eventually("sender.resumed == 1", lambda: sender.resumed == 1)
        assert o.inbox.offer(sender, report(4))


async def test_bytes_are_bounded_over_all_nodes() -> None:
    limits = InboxLimits(writers=1, total_bytes=1000)
    async with office(limits) as o:
        o.desired.assign(key(9), {B: assignment(9)})
        o.statuses.by_uid[uid(9)] = {}
        big, other = Sender(A), Sender(B)
        o.statuses.open.clear()
        body = wire.pack(wire.ReportBody(details={"text": "x" * 1000}))
        assert not o.inbox.offer(big, report(1, body=body))
        assert not o.inbox.offer(other, report(1, n=9))
        o.statuses.open.set()
        await async_eventually(
            "(big.resumed, other.resumed) == (1, 1)", lambda: (big.resumed, other.resumed) == (1, 1)
        )


async def test_a_session_that_ended_is_not_resumed() -> None:
    async with office(InboxLimits(writers=1, reports_per_node=1)) as o:
        sender = Sender()
        o.statuses.open.clear()
        assert not o.inbox.offer(sender, report(1))
        o.inbox.drop(sender)
        o.statuses.open.set()
        await async_eventually("o.inbox.depth == 0", lambda: o.inbox.depth == 0)
        assert sender.resumed == 0


async def test_nothing_new_is_done_without_a_write() -> None:
    async with office() as o:
        sender = Sender()
        for seq in (1, 2):
            o.inbox.offer(sender, report(seq, body=report_body(seen=5)))
            await async_eventually("o.inbox.depth == 0", lambda: o.inbox.depth == 0)
        assert sender.acks == [(1, ""), (2, "")]
        assert len(o.statuses.writes) == 1
        assert o.count("done") == 2


async def test_an_object_whose_writes_hang_leaves_writers_to_other_objects() -> None:
    workers = tuple(f"w{number}" for number in range(100))
    async with office(InboxLimits()) as o:
        o.desired.assign(key(0), {A: assignment(0, version=2, workers=workers)})
        released = o.statuses.hanging[uid(0)] = asyncio.Event()
        stuck, sender = Sender(), Sender(B)
        for number, worker in enumerate(workers):
            o.inbox.offer(stuck, report(number + 1, worker))
        await async_eventually("a write that hangs", lambda: o.statuses.hung == 1)
        o.desired.assign(key(1), {B: assignment(1, version=2, workers=WORKERS)})
        o.inbox.offer(sender, report(1, n=1))
        await async_eventually("the other object's ack", lambda: sender.acks == [(1, "")])
        released.set()
        await async_eventually("all acks", lambda: len(stuck.acks) == len(workers))
    assert {refused for _, refused in stuck.acks} == {""}
