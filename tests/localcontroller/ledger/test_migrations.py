"""A ledger goes from one release to the next and back. Real files; the next release is made here.

Its steps come after those of this release, so taking them away again is the rollback.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlite_utils import Database

from edgeai.errors import StateError
from localcontroller.ledger import schema
from localcontroller.ledger.file import LEDGER
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.migrations import MIGRATIONS, require
from tests.localcontroller.builders import UID, WORKER, assign, key, report_of, worker_message

KNOWN = len(MIGRATIONS._migrations)
TABLES = ("meta", "tasks", "grants", "workers", "processes")


def adds_columns_and_a_table(db: Database) -> None:
    for table in TABLES:
        db.execute(f"ALTER TABLE {table} ADD COLUMN priority INTEGER NOT NULL DEFAULT 0")
    db.table("lessons").create({"key": str, "note": str}, pk="key", strict=True)


def removes_what_the_step_before_replaced(db: Database) -> None:
    require(db, KNOWN + 1)


@contextlib.contextmanager
def next_release(*steps: Callable[[Database], None]) -> Iterator[None]:
    known = list(MIGRATIONS._migrations)
    for step in steps:
        MIGRATIONS()(step)
        schema.STEPS.append(step.__name__)
    try:
        yield
    finally:
        MIGRATIONS._migrations[:] = known
        del schema.STEPS[KNOWN:]


def test_each_step_is_known_by_its_name_before_it_is_loaded() -> None:
    assert [step.name for step in MIGRATIONS._migrations] == schema.STEPS


async def leave_by(*steps: Callable[[Database], None], at: Path) -> None:
    """Open and close the ledger as a release does that also has these steps."""
    with next_release(*steps):
        await (await Ledger.open(at)).close()


async def seen_by(ledger: Ledger) -> list[float | int]:
    return [report_of(report.body).task_info["seen"] for report in await ledger.reports()]


async def test_an_older_release_works_with_the_ledger_of_the_next_release(state_dir: Path) -> None:
    with next_release(adds_columns_and_a_table):
        newer = await Ledger.open(state_dir)
        await newer.remember_epoch(7)
        await newer.apply([assign()])
        await newer.record(UID, WORKER, [worker_message(5)])
        await newer.close()
    older = await Ledger.open(state_dir)
    assert (older.view.ledger_id, older.view.epoch) == (newer.view.ledger_id, 7)
    assert older.view.task_versions.keys() == {key()}
    assert await seen_by(older) == [5]
    assert await older.apply([assign(version=2), assign("second", uid="uid-2")]) == ["", ""]
    await older.record(UID, WORKER, [worker_message(8), worker_message(2, instance="p2")])
    assert await seen_by(older) == [10], "counts of both processes"
    await older.close()


async def test_the_next_release_reads_what_the_older_release_wrote_after_a_rollback(
    state_dir: Path,
) -> None:
    with next_release(adds_columns_and_a_table):
        newer = await Ledger.open(state_dir)
        await newer.apply([assign()])
        await newer.close()
    older = await Ledger.open(state_dir)
    await older.apply([assign(version=2)])
    await older.record(UID, WORKER, [worker_message(3)])
    await older.close()
    with next_release(adds_columns_and_a_table):
        newer = await Ledger.open(state_dir)
        assert newer.view.ledger_id == older.view.ledger_id
        assert newer.view.task_versions[key()].version == 2
        assert await seen_by(newer) == [3]
        await newer.close()


async def test_a_ledger_two_releases_ahead_is_refused_by_name_and_left_alone(
    state_dir: Path,
) -> None:
    await leave_by(adds_columns_and_a_table, removes_what_the_step_before_replaced, at=state_dir)
    before = (state_dir / LEDGER).read_bytes()
    with pytest.raises(StateError) as refusal:
        await Ledger.open(state_dir)
    assert str(refusal.value) == (
        f"state directory {state_dir}: {LEDGER} needs schema {KNOWN + 1}, this localcontroller "
        f"supports {KNOWN}; install the release that ran here last, or the one before it; or move "
        "the file away to start from what the cloud knows, without what it was not told yet"
    )
    assert (state_dir / LEDGER).read_bytes() == before
    assert not [name for name in os.listdir(state_dir) if "damaged" in name]


async def test_the_next_release_opens_a_ledger_that_this_release_refuses(state_dir: Path) -> None:
    await leave_by(adds_columns_and_a_table, removes_what_the_step_before_replaced, at=state_dir)
    with pytest.raises(StateError, match="needs schema"):
        await Ledger.open(state_dir)
    await leave_by(adds_columns_and_a_table, at=state_dir)


async def test_the_release_before_can_open_the_ledger_of_this_release(state_dir: Path) -> None:
    """Fails if this release requires its own newest step: then no rollback would be possible."""
    await leave_by(at=state_dir)
    with contextlib.closing(sqlite3.connect(state_dir / LEDGER)) as connection:
        (needed,) = connection.execute("PRAGMA user_version").fetchone()
    assert needed < KNOWN
