"""The ledger under SIGKILL, damaged files and full disks."""

import asyncio
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from common import wire
from edgeai.errors import Unavailable
from edgeai.ids import Uid, WorkerName
from localcontroller.ledger.file import MAX_DAMAGED
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.tables import LedgerFull
from tests.localcontroller.builders import UID, WORKER, assign, body, key, synced, worker_message
from tests.localcontroller.full_disk import fill_disk

KILLS = 6
RESERVE_BYTES = 128 * 1024


def run_and_kill(directory: Path, *, after: int) -> int:
    """The last number that the committer acknowledged before SIGKILL."""
    command = [sys.executable, "-m", "tests.localcontroller.ledger.committer", str(directory)]
    last = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _, line in zip(range(after), process.stdout, strict=False):
            last = int(line)
        process.kill()
        for line in process.stdout:
            last = int(line)
    return last


async def state_of(directory: Path) -> tuple[int, int]:
    ledger = await Ledger.open(directory)
    (row,) = await ledger.workers()
    await ledger.close()
    return row.worker.totals["seen"], ledger.view.task_versions[key("faces")].version


async def test_what_was_acknowledged_is_durable_across_sigkill(state_dir: Path) -> None:
    chance = random.Random(7)
    for _ in range(KILLS):
        after = chance.randrange(1, 120)
        acknowledged = await asyncio.to_thread(run_and_kill, state_dir, after=after)
        seen, version = await state_of(state_dir)
        # The ledger may also have the next operation, committed but not acknowledged.
        assert acknowledged <= seen <= acknowledged + 1
        assert acknowledged <= version <= acknowledged + 1


# ---- damage --------------------------------------------------------------------------------------


async def fill(ledger: Ledger, count: int = 40) -> None:
    names = [f"w{n}" for n in range(count)]
    await ledger.apply([assign(body_=body(*names, spec={"x": "y" * 5000}))])
    for name in names:
        await ledger.record(UID, WorkerName(name), [worker_message(1, details={"text": "z" * 500})])


@pytest.fixture
async def filled_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "filled"
    ledger = await Ledger.open(directory, reserve_bytes=0)
    await fill(ledger)
    await ledger.close()
    return directory


async def open_and_use(directory: Path) -> Ledger:
    ledger = await Ledger.open(directory, reserve_bytes=0)
    assert await ledger.apply([assign(version=9), synced("digits")]) == [""] * 2
    await ledger.record(UID, WORKER, [worker_message(5)])
    assert len(await ledger.reports()) >= 1
    await ledger.close()
    return ledger


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda data: b"",
    "half a header": lambda data: data[:50],
    "one page": lambda data: data[:4096],
    "torn page": lambda data: data[: 4096 * 5 + 1000],
    "last page lost": lambda data: data[:-4096],
    "another file": lambda data: b"#!/bin/sh\n" * 4000,
    "header of noise": lambda data: os.urandom(100) + data[100:],
    "first page of zeros": lambda data: bytes(4096) + data[4096:],
    "schema of noise": lambda data: data[:100] + os.urandom(3996) + data[4096:],
    "all pages but the first of zeros": lambda data: data[:4096] + bytes(len(data) - 4096),
}


@pytest.mark.parametrize("case", DAMAGES)
async def test_a_damaged_file_is_set_aside_and_a_new_one_serves(
    case: str, filled_dir: Path, state_dir: Path
) -> None:
    shutil.copytree(filled_dir, state_dir)
    file = state_dir / "ledger.db"
    before = await asyncio.to_thread(file.read_bytes)
    await asyncio.to_thread(file.write_bytes, DAMAGES[case](before))
    old = sqlite3.connect(filled_dir / "ledger.db")
    instance = old.execute("SELECT instance FROM meta").fetchone()[0]
    old.close()
    ledger = await open_and_use(state_dir)
    assert ledger.view.ledger_id != instance
    assert ledger.view.epoch == 0


async def test_noise_in_any_page_never_stops_the_ledger(filled_dir: Path, state_dir: Path) -> None:
    shutil.copytree(filled_dir, state_dir)
    file = state_dir / "ledger.db"
    good = await asyncio.to_thread(file.read_bytes)
    chance = random.Random(11)
    for page in range(len(good) // 4096):
        bad = bytearray(good)
        start = page * 4096 + chance.randrange(4000)
        bad[start : start + 64] = chance.randbytes(64)
        await asyncio.to_thread(file.write_bytes, bad)
        await open_and_use(state_dir)


async def test_a_torn_log_leaves_an_earlier_commit(state_dir: Path, tmp_path: Path) -> None:
    ledger = await Ledger.open(state_dir, reserve_bytes=0)
    await ledger.apply([assign()])
    for n in range(1, 10):
        await ledger.record(UID, WORKER, [worker_message(n)])
    log = await asyncio.to_thread((state_dir / "ledger.db-wal").read_bytes)
    for case, length in enumerate(range(0, len(log), len(log) // 12)):
        copy = tmp_path / f"copy-{case}"
        shutil.copytree(state_dir, copy)
        await asyncio.to_thread((copy / "ledger.db-wal").write_bytes, log[:length])
        torn = await open_and_use(copy)
        assert torn.view.task_versions == {key(): wire.TaskVersion(UID, 9)}
    await ledger.close()


async def test_a_ledger_that_is_damaged_while_in_use_is_set_aside(
    ledger: Ledger, state_dir: Path
) -> None:
    await fill(ledger)
    before = ledger.view
    db, _ = ledger.file._opened()

    def damage() -> None:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("PRAGMA shrink_memory")
        with (state_dir / "ledger.db").open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(4096)
            file.write(os.urandom(size - 4096))

    await asyncio.to_thread(damage)
    with pytest.raises(Unavailable, match="damaged"):
        await ledger.workers()
    after = await asyncio.wait_for(ledger.change_since(before), 5)
    assert (after.task_versions, after.ledger_id != before.ledger_id) == ({}, True)
    assert await ledger.apply([assign()]) == [""]
    assert "ledger.db.damaged-1" in os.listdir(state_dir)


def overwrite(file: Path, data: bytes) -> None:
    """As `cp` does: the file keeps its inode."""
    with file.open("r+b") as opened:
        opened.truncate()
        opened.write(data)


def until_files_get_a_later_time(directory: Path) -> None:
    """The kernel's clock for files has steps of some milliseconds."""
    last, probe = (directory / "ledger.db-wal").stat().st_mtime_ns, directory.with_name("probe")
    while True:
        probe.write_bytes(b"")
        if probe.stat().st_mtime_ns > last:
            return


REMOVALS: dict[str, Callable[[Path], object]] = {
    "the ledger": lambda directory: (directory / "ledger.db").unlink(),
    "its log": lambda directory: (directory / "ledger.db-wal").unlink(),
    "replaced by a copy": lambda directory: (
        shutil.copy(directory / "ledger.db", directory / "x")
        and (directory / "x").rename(directory / "ledger.db")
    ),
    "overwritten with noise": lambda directory: overwrite(
        directory / "ledger.db", os.urandom(4096 * 9)
    ),
    "overwritten with itself, as a backup would be": lambda directory: overwrite(
        directory / "ledger.db", (directory / "ledger.db").read_bytes()
    ),
    "its log overwritten": lambda directory: overwrite(
        directory / "ledger.db-wal", bytes((directory / "ledger.db-wal").stat().st_size)
    ),
    "its log emptied": lambda directory: overwrite(directory / "ledger.db-wal", b""),
}


@pytest.mark.parametrize("case", REMOVALS)
async def test_nothing_is_acknowledged_into_a_file_that_is_gone(
    case: str, ledger: Ledger, state_dir: Path
) -> None:
    await fill(ledger)
    before = ledger.view
    await asyncio.to_thread(until_files_get_a_later_time, state_dir)
    await asyncio.to_thread(REMOVALS[case], state_dir)
    with pytest.raises(Unavailable):
        await ledger.apply([assign(version=50)])
    after = await asyncio.wait_for(ledger.change_since(before), 5)
    assert after.ledger_id != before.ledger_id
    assert await ledger.apply([assign()]) == [""]
    await ledger.close()
    again = await Ledger.open(state_dir)
    assert again.view.task_versions == {key(): wire.TaskVersion(UID, 1)}
    await again.close()


@pytest.mark.parametrize("name", ["ledger.db", "ledger.db-wal"])
async def test_nothing_is_acknowledged_into_a_file_that_goes_while_it_is_written(
    name: str, ledger: Ledger, state_dir: Path
) -> None:
    await fill(ledger)
    before = ledger.view.ledger_id
    with pytest.raises(Unavailable):
        await ledger._writer.submit(lambda _: (state_dir / name).unlink())
    assert await ledger.apply([assign()]) == [""]
    assert ledger.view.ledger_id != before


async def test_a_new_owner_or_name_of_the_file_is_no_damage(
    ledger: Ledger, state_dir: Path
) -> None:
    """A backup by hard links, or a change of rights, leaves the content alone."""
    await fill(ledger)
    before = ledger.view.ledger_id
    file = state_dir / "ledger.db"
    await asyncio.to_thread(os.link, file, state_dir / "backup")
    await asyncio.to_thread(file.chmod, 0o640)
    assert await ledger.apply([assign(version=50)]) == [""]
    assert ledger.view.ledger_id == before


async def test_a_state_directory_that_comes_back_is_used_again(
    ledger: Ledger, state_dir: Path
) -> None:
    await fill(ledger)
    await asyncio.to_thread(state_dir.rename, state_dir.with_name("elsewhere"))
    for version in (50, 51):
        with pytest.raises(Unavailable):
            await ledger.apply([assign(version=version)])
    await asyncio.to_thread(state_dir.with_name("elsewhere").rename, state_dir)
    assert await ledger.apply([assign(version=52)]) == [""]
    assert ledger.view.task_versions[key()] == wire.TaskVersion(UID, 52)


async def test_only_the_newest_damaged_ledgers_are_kept(state_dir: Path) -> None:
    for round_ in range(1, MAX_DAMAGED + 4):
        ledger = await Ledger.open(state_dir, reserve_bytes=0)
        await ledger.close()
        noise = b"noise" * 1000 + bytes([round_])
        await asyncio.to_thread((state_dir / "ledger.db").write_bytes, noise)
    kept = sorted(name for name in os.listdir(state_dir) if "damaged" in name)
    assert kept == [f"ledger.db.damaged-{n}" for n in (3, 4, 5)]


# ---- full disk -----------------------------------------------------------------------------------


async def record_until_full(ledger: Ledger) -> int:
    """The last total that was acknowledged."""
    for n in range(1, 10_000):
        try:
            await ledger.record(UID, WORKER, [worker_message(n, details={"text": "t" * 2000})])
        except LedgerFull:
            return n - 1
    raise AssertionError("the disk was never full")


async def test_a_full_disk_takes_final_states_only_until_there_is_space(small_disk: Path) -> None:
    state_dir = small_disk / "state"
    ledger = await Ledger.open(state_dir, reserve_bytes=RESERVE_BYTES)
    await ledger.apply([assign(body_=body(WORKER, "other", "third"))])
    filler = await asyncio.to_thread(fill_disk, small_disk)
    acknowledged = await record_until_full(ledger)

    await ledger.record(UID, WorkerName("other"), [worker_message(3, status="failed")])
    assert "reserve" not in os.listdir(state_dir)
    with pytest.raises(LedgerFull):  # the released reserve is for final states only
        await ledger.record(UID, WorkerName("third"), [worker_message(1)])
    with pytest.raises(LedgerFull):
        await ledger.apply([assign("faces", uid="uid-2")])
    await ledger.record(UID, WorkerName("third"), [worker_message(1, status="completed")])

    await asyncio.to_thread(filler.unlink)
    await ledger.record(UID, WORKER, [worker_message(acknowledged + 1)])
    assert "reserve" in os.listdir(state_dir)
    await ledger.close()
    ledger = await Ledger.open(state_dir, reserve_bytes=RESERVE_BYTES)
    states = {row.name: (row.worker.status, row.worker.totals) for row in await ledger.workers()}
    await ledger.close()
    assert states == {
        WORKER: ("running", {"seen": acknowledged + 1}),
        "other": ("failed", {"seen": 3}),
        "third": ("completed", {"seen": 1}),
    }


async def test_a_ledger_opens_on_a_full_disk(small_disk: Path) -> None:
    state_dir = small_disk / "state"
    ledger = await Ledger.open(state_dir, reserve_bytes=RESERVE_BYTES)
    await ledger.apply([assign()])
    await ledger.close()
    await asyncio.to_thread(fill_disk, small_disk)
    ledger = await Ledger.open(state_dir, reserve_bytes=RESERVE_BYTES)
    await ledger.record(UID, WORKER, [worker_message(1, status="completed")])
    await ledger.close()


async def test_a_first_start_on_a_full_disk_says_that_there_is_no_space(small_disk: Path) -> None:
    await asyncio.to_thread((small_disk / "state").mkdir)
    filler = await asyncio.to_thread(fill_disk, small_disk)
    with pytest.raises(LedgerFull):
        await Ledger.open(small_disk / "state", reserve_bytes=RESERVE_BYTES)
    await asyncio.to_thread(filler.unlink)
    ledger = await Ledger.open(small_disk / "state", reserve_bytes=RESERVE_BYTES)
    assert await ledger.apply([assign()]) == [""]
    await ledger.close()


async def test_a_file_size_limit_counts_as_a_full_disk_and_not_as_damage(ledger: Ledger) -> None:
    """RLIMIT_FSIZE fails writes like a quota does, with no ENOSPC."""
    await ledger.apply([assign()])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    instance = ledger.view.ledger_id
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, hard))
    try:
        acknowledged = await record_until_full(ledger)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await ledger.record(Uid(UID), WORKER, [worker_message(acknowledged + 1)])
    (row,) = await ledger.workers()
    assert (row.worker.totals, ledger.view.ledger_id) == ({"seen": acknowledged + 1}, instance)
