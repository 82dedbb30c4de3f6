"""The promises of the ledger, one by one; test_ledger_properties tests their combinations."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from common import wire
from edgeai.errors import Overloaded, StateError, Unavailable
from edgeai.ids import Uid, WorkerName
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.outbox import ReportAcked
from localcontroller.ledger.tables import MAX_RETIRED, LedgerFull, NotGranted
from localcontroller.ledger.writer import MAX_WAITING, DefectiveOperation, LedgerCommit
from tests.localcontroller.builders import (
    UID,
    WORKER,
    assign,
    body,
    key,
    report_of,
    secret_hash,
    synced,
    withdraw,
    worker_message,
)


async def acknowledge_all(ledger: Ledger) -> None:
    await ledger.apply([ReportAcked(report, "") for report in await ledger.reports()])


def files_of(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        entry.name: (entry.stat().st_size, entry.stat().st_mtime_ns)
        for entry in os.scandir(directory)
    }


async def test_a_new_ledger_has_an_identity_that_it_keeps(state_dir: Path) -> None:
    first = await Ledger.open(state_dir)
    await first.close()
    second = await Ledger.open(state_dir)
    await second.close()
    assert first.view.ledger_id == second.view.ledger_id
    assert len(first.view.ledger_id) == 32


async def test_the_epoch_survives_and_never_goes_back(state_dir: Path) -> None:
    ledger = await Ledger.open(state_dir)
    for epoch in (7, 3):
        await ledger.remember_epoch(epoch)
    await ledger.close()
    ledger = await Ledger.open(state_dir)
    await ledger.close()
    assert ledger.view.epoch == 7


async def test_an_older_version_is_ignored_and_still_acknowledged(ledger: Ledger) -> None:
    newer, older = assign(version=5), assign(version=4, body_=body("other"))
    assert await ledger.apply([newer, older]) == ["", ""]
    assert ledger.view.task_versions == {key(): wire.TaskVersion(UID, 5)}
    assert ledger.view.grants[secret_hash()].workers == {WORKER}


async def test_a_new_uid_replaces_the_task_at_any_version(ledger: Ledger) -> None:
    await ledger.apply([assign(version=5)])
    await ledger.record(UID, WORKER, [worker_message(1)])
    await ledger.apply([assign(uid="uid-2", version=1)])
    assert ledger.view.task_versions == {key(): wire.TaskVersion("uid-2", 1)}
    assert await ledger.workers() == []


async def test_a_withdrawal_of_a_former_uid_does_nothing(ledger: Ledger) -> None:
    await ledger.apply([assign(uid="uid-2"), withdraw(uid="uid-1")])
    assert key() in ledger.view.task_versions


async def test_synced_drops_what_it_does_not_name(ledger: Ledger) -> None:
    await ledger.apply([assign(), assign("faces", uid="uid-2"), synced("faces")])
    assert set(ledger.view.task_versions) == {key("faces")}
    assert {grant.uid for grant in ledger.view.grants.values()} == {"uid-2"}


REFUSED = {
    "no body": (assign(body_=b""), "malformed body"),
    "body of bad text": (assign(body_=b"\x81\xa4name\xa1\xff"), "utf-8"),
    "body of a wrong shape": (assign(body_=wire.pack({"name": 1})), "$.name"),
    "a path as key": (assign("../../etc"), "task key"),
    "more than the ledger holds": (
        assign(body_=body(spec={"x": "y" * 2_000_000})),
        "--ledger-max-bytes",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_task_that_cannot_be_decoded_is_refused_with_a_reason(
    case: str, state_dir: Path
) -> None:
    frame, reason = REFUSED[case]
    ledger = await Ledger.open(state_dir, max_bytes=1024 * 1024, reserve_bytes=0)
    refusals = await ledger.apply([assign("faces", uid="uid-2"), frame])
    await ledger.close()
    assert refusals[0] == ""
    assert reason in refusals[1]
    assert set(ledger.view.task_versions) == {key("faces")}


async def test_tasks_may_not_fill_the_ledger_and_a_deleted_task_makes_room(state_dir: Path) -> None:
    ledger = await Ledger.open(state_dir, max_bytes=1024 * 1024, reserve_bytes=0)
    big = body(spec={"x": "y" * 100_000})
    frames = [assign(f"t{n}", uid=f"uid-{n}", body_=big) for n in range(12)]
    refusals = await ledger.apply(frames)
    assert 0 < refusals.count("") < 12
    await ledger.record(Uid("uid-0"), WORKER, [worker_message(1)])  # reports have their own share
    await ledger.apply([synced()])
    assert await ledger.apply([frames[-1]]) == [""]
    await ledger.close()
    assert (state_dir / "ledger.db").stat().st_size <= 1024 * 1024


async def test_only_granted_workers_of_held_tasks_have_a_record(ledger: Ledger) -> None:
    await ledger.apply([assign()])
    for uid, worker in (("uid-9", WORKER), (UID, WorkerName("stranger"))):
        with pytest.raises(NotGranted):
            await ledger.record(Uid(uid), worker, [worker_message(1)])
    assert await ledger.workers() == []


async def test_reports_wait_for_their_ack_across_restarts(state_dir: Path) -> None:
    ledger = await Ledger.open(state_dir)
    await ledger.apply([assign()])
    await ledger.record(UID, WORKER, [worker_message(7, status="completed")])
    await ledger.close()
    ledger = await Ledger.open(state_dir)
    (report,) = await ledger.reports()
    assert report_of(report.body).task_info == {"seen": 7}
    await acknowledge_all(ledger)
    assert (await ledger.reports(), await ledger.count_unacked()) == ([], 0)
    await ledger.close()


@pytest.mark.parametrize("is_told", [True, False], ids=["the failure was told", "and was not"])
async def test_a_restarted_worker_has_the_state_of_its_last_process(
    state_dir: Path, *, is_told: bool
) -> None:
    """A round of a trainer is a number and not a count. The ledger is reopened in between."""
    ledger = await Ledger.open(state_dir)
    await ledger.apply([assign()])
    await ledger.record(UID, WORKER, [worker_message(numbers={"currentRound": 4}, status="failed")])
    if is_told:
        await acknowledge_all(ledger)
    await ledger.close()
    ledger = await Ledger.open(state_dir)
    for status in ("running", "completed"):
        again = worker_message(instance="p2", numbers={"currentRound": 5}, status=status)
        await ledger.record(UID, WORKER, [again])
        late = worker_message(numbers={"currentRound": 4}, status="failed")
        await ledger.record(UID, WORKER, [late])
        (report,) = await ledger.reports()
        told = report_of(report.body)
        assert (report.attempt, told.status, told.task_info["currentRound"]) == (2, status, 5)
    await ledger.close()


async def test_an_ack_removes_only_the_revision_that_it_names(ledger: Ledger) -> None:
    await ledger.apply([assign()])
    await ledger.record(UID, WORKER, [worker_message(1)])
    (old,) = await ledger.reports()
    await ledger.record(UID, WORKER, [worker_message(2)])
    await ledger.apply([ReportAcked(old, "")])
    assert [report_of(r.body).task_info["seen"] for r in await ledger.reports()] == [2]


async def test_attempts_and_counts_go_on_when_a_task_returns(ledger: Ledger) -> None:
    """The cloud drops a report with a lower attempt from the same ledger as an old report."""
    await ledger.apply([assign()])
    await ledger.record(UID, WORKER, [worker_message(10)])
    await ledger.apply([withdraw(), assign()])
    await ledger.record(UID, WORKER, [worker_message(5, instance="p2")])
    (report,) = await ledger.reports()
    (row,) = await ledger.workers()
    assert (report.attempt, row.worker.totals) == (2, {"seen": 15})


async def test_a_process_that_outlives_its_tasks_absence_is_reported_again(ledger: Ledger) -> None:
    await ledger.apply([assign()])
    await ledger.record(UID, WORKER, [worker_message(10)])
    await ledger.apply([withdraw(), assign()])
    assert await ledger.reports() == []
    await ledger.record(UID, WORKER, [worker_message(10)])
    (report,) = await ledger.reports()
    assert report_of(report.body).status == "running"


async def test_the_end_of_a_worker_is_reported_again_when_its_task_returns(ledger: Ledger) -> None:
    """The worker says nothing more, and the cloud may not have got its end before the absence."""
    await ledger.apply([assign()])
    await ledger.record(UID, WORKER, [worker_message(10, status="completed")])
    before = ledger.view
    await ledger.apply([withdraw(), assign()])
    (report,) = await ledger.reports(after=before.revision)
    assert report_of(report.body).status == "completed"
    await ledger.apply([ReportAcked(report, "")])
    assert await ledger.reports() == []


async def test_a_state_is_reported_again_with_each_version_of_the_task(ledger: Ledger) -> None:
    """The worker may have belonged to another node in between, which this node did not hear of."""
    await ledger.apply([assign()])
    await ledger.record(UID, WORKER, [worker_message(10)])
    (old,) = await ledger.reports()
    await ledger.apply([ReportAcked(old, ""), assign()])
    assert await ledger.reports() == [], "the same version says nothing new"
    await ledger.apply([assign(version=3)])
    (report,) = await ledger.reports()
    assert report_of(report.body).task_info == {"seen": 10}
    assert report.revision > old.revision
    await ledger.apply([ReportAcked(report, "")])
    assert await ledger.reports() == []


async def test_a_worker_that_is_silent_since_its_task_returned_is_not_reported(
    ledger: Ledger,
) -> None:
    await ledger.apply([assign()])
    await ledger.record(UID, WORKER, [worker_message(10)])
    await ledger.apply([withdraw(), assign(), assign(version=3)])
    assert await ledger.reports() == []


async def test_workers_of_tasks_that_never_return_are_forgotten(ledger: Ledger) -> None:
    kept = MAX_RETIRED + 5
    for n in range(kept):
        uid = Uid(f"uid-{n}")
        await ledger.apply([assign(f"t{n}", uid=uid)])
        await ledger.record(uid, WORKER, [worker_message(n)])
        await ledger.apply([withdraw(f"t{n}", uid=uid)])
    await ledger.apply([assign("t4", uid="uid-4"), assign("t5", uid="uid-5")])
    for n in (4, 5):
        await ledger.record(Uid(f"uid-{n}"), WORKER, [worker_message(1, instance="p2")])
    assert [row.worker.totals["seen"] for row in await ledger.workers()] == [1, 6]


async def test_an_ack_from_before_a_withdrawal_clears_nothing_new(ledger: Ledger) -> None:
    await ledger.apply([assign()])
    await ledger.record(UID, WORKER, [worker_message(1)])
    (old,) = await ledger.reports()
    await ledger.apply([withdraw(), assign()])
    await ledger.record(UID, WORKER, [worker_message(1)])
    await ledger.apply([ReportAcked(old, "")])
    assert await ledger.count_unacked() == 1


async def test_a_refused_report_is_not_sent_again(ledger: Ledger) -> None:
    await ledger.apply([assign()])
    await ledger.record(UID, WORKER, [worker_message(1)])
    (report,) = await ledger.reports()
    await ledger.apply([ReportAcked(report, "no such worker")])
    assert await ledger.reports() == []


async def test_a_worker_that_a_new_version_no_longer_names_goes_once_it_is_acknowledged(
    ledger: Ledger,
) -> None:
    await ledger.apply([assign()])
    await ledger.record(UID, WORKER, [worker_message(1)])
    await ledger.apply([assign(version=2, body_=body("other"))])
    assert [report.worker for report in await ledger.reports()] == [WORKER]
    await acknowledge_all(ledger)
    await ledger.apply([assign(version=3, body_=body("other"))])
    assert await ledger.workers() == []


async def test_a_message_that_changes_nothing_writes_nothing(
    ledger: Ledger, state_dir: Path
) -> None:
    commits: list[LedgerCommit] = []
    await ledger.apply([assign()])
    await ledger.remember_epoch(3)
    await ledger.record(UID, WORKER, [worker_message(1, sequence=1, heartbeat_s=5.0)])
    await acknowledge_all(ledger)
    files, view = files_of(state_dir), ledger.view
    ledger.on_commit = commits.append
    for sequence in range(2, 50):
        await ledger.record(UID, WORKER, [worker_message(1, sequence=sequence, heartbeat_s=5.0)])
    await ledger.apply([assign(), synced("digits"), withdraw("unknown")])
    await ledger.remember_epoch(3)
    assert files_of(state_dir) == files
    assert ledger.view is view
    assert {commit.changes for commit in commits} == {0}


async def test_many_operations_share_a_commit(ledger: Ledger) -> None:
    names = [f"w{n}" for n in range(200)]
    await ledger.apply([assign(body_=body(*names))])
    commits: list[LedgerCommit] = []
    ledger.on_commit = commits.append
    await asyncio.gather(*(ledger.record(UID, WorkerName(n), [worker_message(1)]) for n in names))
    assert len(commits) < 50
    assert len(await ledger.reports()) == 200


async def test_the_queue_is_bounded(ledger: Ledger) -> None:
    gate = threading.Event()  # blocks the thread of the writer
    first = asyncio.ensure_future(ledger._writer.submit(lambda _: gate.wait(), is_read=True))
    calls = [ledger.record(UID, WORKER, [worker_message(1)]) for _ in range(2 * MAX_WAITING)]
    gathered = asyncio.gather(*calls, return_exceptions=True)
    await asyncio.sleep(0)  # now each operation is in the queue or refused
    gate.set()
    results = await gathered
    assert await first
    assert any(isinstance(result, Overloaded) for result in results)
    assert await ledger.count_unacked() == 0  # the ledger still works


async def test_a_closed_ledger_says_so(state_dir: Path) -> None:
    ledger = await Ledger.open(state_dir)
    await ledger.close()
    await ledger.close()
    with pytest.raises(Unavailable, match="closed"):
        await ledger.count_unacked()


async def test_waiting_operations_are_committed_before_the_ledger_closes(state_dir: Path) -> None:
    ledger = await Ledger.open(state_dir)
    names = [f"task-{n}" for n in range(300)]
    calls = [asyncio.ensure_future(ledger.apply([assign(n, uid=n)])) for n in names]
    await asyncio.sleep(0)  # the operations are in the queue now
    await ledger.close()
    assert all(refusal == [""] for refusal in await asyncio.gather(*calls))
    ledger = await Ledger.open(state_dir)
    await ledger.close()
    assert set(ledger.view.task_versions) == {key(name) for name in names}


async def test_one_bad_operation_harms_no_other_of_its_batch(ledger: Ledger) -> None:
    await ledger.apply([assign()])

    def defect(_tables: object) -> None:
        raise ZeroDivisionError

    good = [ledger.record(UID, WORKER, [worker_message(n)]) for n in range(5)]
    bad = ledger._writer.submit(defect)
    results = await asyncio.gather(*good, bad, return_exceptions=True)
    assert [isinstance(result, Exception) for result in results] == [False] * 5 + [True]
    assert isinstance(results[-1], DefectiveOperation)


async def test_a_second_ledger_on_the_same_directory_is_refused(
    ledger: Ledger, state_dir: Path
) -> None:
    with pytest.raises(StateError, match="another localcontroller") as refusal:
        await Ledger.open(state_dir)
    assert str(state_dir) in str(refusal.value)


UNUSABLE: dict[str, Callable[[Path], tuple[Path | None, Path]]] = {
    "its parent is a file": lambda tmp: (tmp / "file", tmp / "file" / "state"),
    "it is a file": lambda tmp: (tmp / "file", tmp / "file"),
    "a file system that takes no files": lambda _: (None, Path("/proc/edgeai")),
}


@pytest.mark.parametrize("case", UNUSABLE)
async def test_a_directory_that_cannot_be_written_is_named_with_a_remedy(
    case: str, tmp_path: Path
) -> None:
    file, directory = UNUSABLE[case](tmp_path)
    if file is not None:
        file.write_text("in the way")
    with pytest.raises(StateError, match="--state-dir") as refusal:
        await Ledger.open(directory)
    assert str(directory) in str(refusal.value)


async def test_sqlite_runs_with_the_settings_for_durability(ledger: Ledger) -> None:
    db, _ = ledger.file._opened()
    pragmas = ("journal_mode", "synchronous", "locking_mode")
    assert [db.execute(f"PRAGMA {p}").fetchone()[0] for p in pragmas] == ["wal", 2, "exclusive"]
    rows = db.execute("PRAGMA table_list")
    columns = [column[0] for column in rows.description]
    tables = [dict(zip(columns, row, strict=True)) for row in rows]
    ours = [t for t in tables if t["type"] == "table" and not t["name"].startswith(("sqlite", "_"))]
    assert {t["name"] for t in ours} == {"grants", "meta", "processes", "tasks", "workers"}
    assert all(table["strict"] for table in ours)


async def test_a_final_state_fits_where_a_running_one_does_not(state_dir: Path) -> None:
    ledger = await Ledger.open(state_dir, max_bytes=1024 * 1024, reserve_bytes=0)
    names = [WorkerName(f"w{n}") for n in range(100)]
    await ledger.apply([assign(body_=body(*names))])
    filler = {"x": "y" * 16_000}
    calls = (ledger.record(UID, name, [worker_message(1, details=filler)]) for name in names[:-1])
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(result) for result in results} == {list, LedgerFull}
    (done,) = await ledger.record(UID, names[-1], [worker_message(1, status="completed")])
    assert done.worker.status == "completed"
    await ledger.close()
