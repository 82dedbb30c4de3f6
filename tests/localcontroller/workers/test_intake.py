"""When the messages of workers are committed: at once, or together with later ones. Real ledger.

A message that waits in these tests waits for ever, so each test shows by its end that nothing did.
"""

import asyncio

import pytest

from edgeai.ids import Uid, WorkerName
from localcontroller.ledger.ledger import Ledger
from localcontroller.workers.intake import Intake
from tests.localcontroller.builders import UID, WORKER, assign, body, worker_message
from tests.support.waiting import PATIENCE_S

OTHER = WorkerName("digits-cloud")
EVER_S = 3600.0


@pytest.fixture
async def tasks(ledger: Ledger) -> Ledger:
    await ledger.apply([assign(body_=body(WORKER, OTHER))])
    return ledger


async def record(intake: Intake, seen: int, *, worker: str = WORKER, **fields: object) -> int:
    """Returns: the total of the worker after the commit"""
    recorded = await intake.record(UID, WorkerName(worker), worker_message(seen, **fields))
    return recorded.worker.totals["seen"]


async def test_messages_of_a_node_with_few_of_them_do_not_wait(tasks: Ledger) -> None:
    intake = Intake(tasks, interval_s=EVER_S)
    async with asyncio.timeout(PATIENCE_S):
        assert [await record(intake, seen) for seen in range(1, 41)] == list(range(1, 41))


async def test_messages_beyond_the_rate_share_a_commit_and_a_final_state_does_not_wait(
    tasks: Ledger,
) -> None:
    intake = Intake(tasks, interval_s=EVER_S, early_per_s=1e-6)
    async with asyncio.timeout(PATIENCE_S):
        await record(intake, 1)
        await record(intake, 2)
        waiting = [asyncio.create_task(record(intake, seen)) for seen in range(3, 40)]
        for _ in range(100):  # time enough for a commit that does not wait
            await asyncio.sleep(0)
        revision = tasks.view.revision
        assert await record(intake, 40, status="completed") == 40
        assert await asyncio.gather(*waiting) == [40] * len(waiting)
    assert tasks.view.revision == revision + 1


async def test_the_first_message_of_a_worker_never_waits_for_the_messages_of_another(
    tasks: Ledger,
) -> None:
    intake = Intake(tasks, interval_s=EVER_S, early_per_s=1e-6)
    async with asyncio.timeout(PATIENCE_S):
        await record(intake, 1)
        await record(intake, 2)
        waiting = asyncio.create_task(record(intake, 3))
        assert await record(intake, 7, worker=OTHER) == 7
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_workers_of_past_tasks_take_no_memory(tasks: Ledger) -> None:
    names = [f"worker-{number}" for number in range(50)]
    await tasks.apply([assign("many", uid="many", body_=body(*names))])
    intake = Intake(tasks, interval_s=0.0)
    for name in names:
        await intake.record(Uid("many"), WorkerName(name), worker_message(1))
        await asyncio.sleep(0.001)
    assert len(intake._last_s) == 1
