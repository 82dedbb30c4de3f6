"""The watch of heartbeats, with a fake clock."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from edgeai.ids import WorkerName
from localcontroller.ledger.ledger import Ledger
from localcontroller.workers.heartbeats import MAX_SLEEP_S, Heartbeats, watch_heartbeats
from tests.localcontroller.builders import UID, WORKER, assign, body, withdraw, worker_message
from tests.support.clock import Clock
from tests.support.tasks import beside
from tests.support.waiting import PATIENCE_S, async_eventually

OTHER = WorkerName("other")
PERIOD_S = 10.0
FACTOR = 3.0


class Watch:
    """A ledger, its workers' deadlines, and the loop between them."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.clock = Clock()
        self.heartbeats = Heartbeats(silence_factor=FACTOR, clock=self.clock)

    async def post_message(self, worker: WorkerName = WORKER, **fields: Any) -> None:
        """What the worker API does with a message."""
        (recorded,) = await self.ledger.record(UID, worker, [worker_message(**fields)])
        self.heartbeats.expect(UID, worker, recorded.worker.heartbeat_s)

    def wait(self, seconds: float) -> None:
        """Advance the clock and wake the loop."""
        self.clock.now_s += seconds
        self.heartbeats.news.set()

    async def statuses(self) -> dict[str, tuple[str, str]]:
        rows = await self.ledger.workers()
        return {row.name: (row.worker.status, row.worker.reason) for row in rows}

    async def until_status(self, status: str, worker: WorkerName = WORKER) -> str:
        """Wait until the worker has this status. Returns: its reason"""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                seen = self.ledger.view
                found, reason = (await self.statuses())[worker]
                if found == status:
                    return reason
                await self.ledger.change_since(seen)

    async def until_checked(self) -> None:
        """Wait until the loop has checked all deadlines and waits again."""
        self.heartbeats.news.set()
        await async_eventually(
            "a check of the deadlines", lambda: not self.heartbeats.news.is_set()
        )


@contextlib.asynccontextmanager
async def watching(ledger: Ledger, **arguments: float) -> AsyncIterator[Watch]:
    watch = Watch(ledger)
    work = watch_heartbeats(ledger, watch.heartbeats, **arguments)
    async with beside(work, "heartbeats") as task:
        await watch.until_checked()
        yield watch
        assert not task.done()  # the watch survived


@pytest.fixture
async def tasks(ledger: Ledger) -> Ledger:
    await ledger.apply([assign(body_=body(WORKER, OTHER))])
    return ledger


async def test_a_silent_worker_is_lost_after_the_promised_time_and_not_before(
    tasks: Ledger,
) -> None:
    async with watching(tasks) as watch:
        await watch.post_message(heartbeat_s=PERIOD_S)
        watch.wait(FACTOR * PERIOD_S - 0.1)
        await watch.until_checked()
        assert (await watch.statuses())[WORKER] == ("running", "")
        watch.wait(0.2)
        assert await watch.until_status("lost") == "no heartbeat for 30 s"


async def test_a_lost_worker_is_back_with_its_next_message(tasks: Ledger) -> None:
    async with watching(tasks) as watch:
        await watch.post_message(seen=3, instance="p1", sequence=1, heartbeat_s=PERIOD_S)
        watch.wait(31)
        await watch.until_status("lost")
        await watch.post_message(seen=3, instance="p1", sequence=2, heartbeat_s=PERIOD_S)
        assert (await watch.statuses())[WORKER] == ("running", "")
        watch.wait(31)  # the deadline is in force again
        await watch.until_status("lost")


async def test_a_worker_that_speaks_in_time_is_never_lost(tasks: Ledger) -> None:
    async with watching(tasks) as watch:
        for _ in range(5):
            await watch.post_message(heartbeat_s=PERIOD_S)
            watch.wait(29)
            await watch.until_checked()
        assert (await watch.statuses())[WORKER] == ("running", "")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"heartbeat_s": 0.0}, id="no promise"),
        pytest.param({"heartbeat_s": PERIOD_S, "status": "completed"}, id="completed"),
        pytest.param({"heartbeat_s": PERIOD_S, "status": "failed"}, id="failed"),
    ],
)
async def test_a_worker_without_a_promise_is_never_lost(
    fields: dict[str, Any], tasks: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    async with watching(tasks) as watch:
        await watch.post_message(**fields)
        watch.wait(10**6)
        await watch.until_checked()
        statuses = await watch.statuses()
    assert statuses[WORKER] == (fields.get("status", "running"), "")
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_a_promise_can_be_taken_back(tasks: Ledger) -> None:
    async with watching(tasks) as watch:
        await watch.post_message(heartbeat_s=PERIOD_S)
        await watch.post_message(heartbeat_s=0.0)
        watch.wait(10**6)
        await watch.until_checked()
        assert (await watch.statuses())[WORKER] == ("running", "")


async def test_each_worker_has_its_own_deadline(tasks: Ledger) -> None:
    async with watching(tasks) as watch:
        await watch.post_message(OTHER, heartbeat_s=100.0)
        await watch.post_message(heartbeat_s=PERIOD_S)
        watch.wait(31)
        await watch.until_status("lost")
        assert (await watch.statuses())[OTHER] == ("running", "")
        watch.wait(300)
        await watch.until_status("lost", OTHER)


async def test_after_a_restart_the_deadline_is_fresh(tasks: Ledger, state_dir: Path) -> None:
    """A worker gets its whole period, however long the LocalController was down."""
    async with watching(tasks) as watch:
        await watch.post_message(heartbeat_s=PERIOD_S)
        watch.wait(29)
    await tasks.close()
    reopened = await Ledger.open(state_dir)
    async with watching(reopened) as watch:
        watch.wait(29)
        await watch.until_checked()
        assert (await watch.statuses())[WORKER] == ("running", "")
        watch.wait(2)
        await watch.until_status("lost")
    await reopened.close()


async def test_after_a_restart_lost_and_finished_workers_have_no_deadline(tasks: Ledger) -> None:
    await tasks.record(UID, WORKER, [worker_message(heartbeat_s=PERIOD_S, status="completed")])
    await tasks.record(UID, OTHER, [worker_message(heartbeat_s=PERIOD_S)])
    await tasks.observe(UID, OTHER, "lost", "no heartbeat for 30 s")
    async with watching(tasks) as watch:
        assert watch.heartbeats.wait_s() == MAX_SLEEP_S


async def test_a_withdrawn_task_ends_the_watch_of_its_workers(tasks: Ledger) -> None:
    async with watching(tasks) as watch:
        await watch.post_message(heartbeat_s=PERIOD_S)
        await tasks.apply([withdraw()])
        watch.wait(31)
        await watch.until_checked()
        assert watch.heartbeats.wait_s() == MAX_SLEEP_S


async def test_a_loss_that_the_ledger_cannot_record_is_tried_again_later(tasks: Ledger) -> None:
    async with watching(tasks, retry_s=7.0) as watch:
        await watch.post_message(heartbeat_s=PERIOD_S)
        await tasks.close()  # now the ledger refuses every operation
        watch.wait(31)
        await async_eventually("the next try", lambda: watch.heartbeats.wait_s() == 7.0)


async def test_silence_is_reported_once(tasks: Ledger) -> None:
    async with watching(tasks) as watch:
        await watch.post_message(heartbeat_s=PERIOD_S)
        watch.wait(31)
        await watch.until_status("lost")
        revision = tasks.view.revision
        watch.wait(1000)
        await watch.until_checked()
        assert tasks.view.revision == revision


def test_a_message_renews_only_a_known_deadline() -> None:
    clock = Clock()
    heartbeats = Heartbeats(silence_factor=FACTOR, clock=clock)
    heartbeats.renew(UID, WORKER)
    assert heartbeats.wait_s() == MAX_SLEEP_S
    heartbeats.expect(UID, WORKER, PERIOD_S)
    clock.now_s += 20
    heartbeats.renew(UID, WORKER)
    assert heartbeats.wait_s() == pytest.approx(FACTOR * PERIOD_S)


def test_a_deadline_that_a_message_set_during_the_retry_stays() -> None:
    clock = Clock()
    heartbeats = Heartbeats(silence_factor=FACTOR, clock=clock)
    heartbeats.expect(UID, WORKER, PERIOD_S)
    clock.now_s += 31
    ((uid, worker, deadline),) = heartbeats.take_missed()
    assert heartbeats.take_missed() == []
    heartbeats.expect(UID, WORKER, PERIOD_S)
    heartbeats.postpone(uid, worker, deadline, 1.0)
    assert heartbeats.wait_s() == pytest.approx(FACTOR * PERIOD_S)
