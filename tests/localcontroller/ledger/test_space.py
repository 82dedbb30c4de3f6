"""The shares of a full ledger: tasks, running states, final states, workers of past tasks."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edgeai.ids import Uid, WorkerName
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.tables import MAX_RETIRED, LedgerFull
from tests.localcontroller.builders import (
    UID,
    assign,
    body,
    key,
    secret_hash,
    withdraw,
    worker_message,
)

MAX_BYTES = 1024 * 1024
LOG = {"log": "x" * 50_000}


@pytest.fixture
async def small(state_dir: Path) -> AsyncIterator[Ledger]:
    ledger = await Ledger.open(state_dir, max_bytes=MAX_BYTES, reserve_bytes=0)
    yield ledger
    await ledger.close()


async def test_running_states_leave_room_for_final_states(small: Ledger) -> None:
    workers = [WorkerName(f"w{n}") for n in range(30)]
    await small.apply([assign(body_=body(*workers))])

    async def fill() -> None:
        for worker in workers:
            await small.record(UID, worker, [worker_message(1, details=LOG)])

    with pytest.raises(LedgerFull, match="--ledger-max-bytes"):
        await fill()
    for worker in workers[-3:]:
        final = worker_message(1, status="completed", details={"log": "x" * 20_000})
        (recorded,) = await small.record(UID, worker, [final])
        assert recorded.worker.is_finished


async def test_workers_of_past_tasks_leave_room_for_new_tasks(small: Ledger) -> None:
    """The tasks of this test write twice as much as the ledger may hold."""
    for n in range(40):
        uid = Uid(f"uid-{n}")
        assert await small.apply([assign(uid=uid)]) == [""]
        (worker,) = next(iter(small.view.grants.values())).workers
        await small.record(uid, worker, [worker_message(1, details=LOG)])
        await small.apply([withdraw(uid=uid)])


async def test_a_worker_that_its_task_no_longer_names_keeps_its_unacknowledged_report(
    ledger: Ledger,
) -> None:
    workers = [WorkerName(f"w{n}") for n in range(MAX_RETIRED + 10)]
    await ledger.apply([assign(body_=body(*workers))])
    for worker in workers:
        await ledger.record(UID, worker, [worker_message(1)])
    await ledger.apply([assign(version=2, body_=body("another"))])
    assert len(await ledger.reports()) == len(workers)


async def test_a_secret_of_two_tasks_mixes_no_workers(ledger: Ledger) -> None:
    await ledger.apply(
        [assign("a", uid="uid-a", body_=body("wa")), assign("b", uid="uid-b", body_=body("wb"))]
    )
    grant = ledger.grant(secret_hash())
    assert grant is not None
    assert grant.workers == ({WorkerName("wa")} if grant.key == key("a") else {WorkerName("wb")})
