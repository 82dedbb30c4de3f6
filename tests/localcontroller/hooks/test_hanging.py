"""Datasets on storage that hangs: a system call on it returns only after the storage is back."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common import wire
from localcontroller.hooks.dataset import MAX_CHECKS
from localcontroller.hooks.sources import (
    DEFAULT_TIMEOUTS,
    SourceOptions,
    SourceThreads,
    SourceTimeouts,
)
from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.hooks.world import assign, watching
from tests.localcontroller.test_process import running
from tests.support.waiting import async_eventually


def in_s3(name: str = "faces") -> wire.Assign:
    """An assignment of a Dataset that needs keys."""
    return assign(name=name, uid=name, url=f"s3://{name}/a.txt", credentialName="s3-key")


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Path]:
    """A directory of keys where one key is a pipe: opening it blocks until there is a writer."""
    pipe = tmp_path / "keys" / "default" / "s3-key" / "ACCESS_KEY_ID"
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    yield tmp_path / "keys"
    while writer := writer_of(pipe):
        os.close(writer)
        time.sleep(0.001)  # each blocked reader opens the pipe, reads nothing, and closes it


def writer_of(pipe: Path) -> int | None:
    """A descriptor that writes to the pipe; None: no reader waits."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


class Mount:
    """A mount with one file. System calls on the file block until `is_back`."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.is_back = threading.Event()
        self.calls = 0
        self._stat = os.stat

    def stat(self, path: Any, **options: Any) -> os.stat_result:
        if path == self.file:
            self.calls += 1
            self.is_back.wait()
        return self._stat(path, **options)


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mount]:
    file = tmp_path / "mount" / "faces.csv"
    file.parent.mkdir()
    file.write_text("x,y\n1,2\n3,4\n")
    mount = Mount(file)
    monkeypatch.setattr(os, "stat", mount.stat)
    yield mount
    mount.is_back.set()


async def test_other_datasets_are_counted_while_checks_hang(
    ledger: Ledger, tmp_path: Path, keys: Path
) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    timeouts = SourceTimeouts(slot_s=0.05)
    async with watching(ledger, SourceOptions(credentials_dir=keys), timeouts=timeouts) as world:
        await ledger.apply([in_s3(f"hangs-{number}") for number in range(MAX_CHECKS)])
        await world.hold(url=str(tmp_path / "a.txt"))
        assert await world.samples() == 1


async def test_storage_that_hangs_is_not_read_again_until_it_answers(
    ledger: Ledger, mount: Mount
) -> None:
    async with watching(ledger, timeouts=SourceTimeouts(total_s=0.3)) as world:
        await world.hold(url=str(mount.file))
        assert "cannot be read within" in (await world.report()).reason
        told = ledger.view
        await world.check_again()
        await world.check_again()
        assert ledger.view is told
        assert mount.calls == 1
        mount.is_back.set()
        await world.until_counted(2)
        assert await world.problem() is None


async def test_a_new_version_of_a_dataset_does_not_read_storage_that_hangs(
    ledger: Ledger, mount: Mount
) -> None:
    elsewhere = mount.file.with_name("elsewhere.csv")
    elsewhere.write_text("x,y\n1,2\n")
    async with watching(ledger, timeouts=SourceTimeouts(total_s=0.3)) as world:
        await world.hold(url=str(mount.file))
        await world.hold(url=str(mount.file), format="txt", version=2)
        report = await world.report()
        assert (report.status, report.details["generation"]) == ("lost", "2")
        assert mount.calls == 1
        await world.hold(url=str(elsewhere), version=3)
        await world.until_counted(1)


async def test_keys_on_storage_that_hangs_are_a_problem(ledger: Ledger, keys: Path) -> None:
    options, timeouts = SourceOptions(credentials_dir=keys), SourceTimeouts(total_s=0.1)
    async with watching(ledger, options, timeouts=timeouts) as world:
        await ledger.apply([in_s3()])
        await world.until_checked(1)
        report = await world.report()
        assert report.details["problem"] == "NoCredential"
        assert report.reason.startswith("spec.credentialName: its files cannot be read within")


async def test_a_caller_that_stops_waiting_for_a_slot_blocks_no_other(mount: Mount) -> None:
    threads = SourceThreads(1, DEFAULT_TIMEOUTS)
    hanging = asyncio.create_task(threads.run("hangs", mount.file.stat), name="hanging")
    await async_eventually("a call that hangs", lambda: mount.calls)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await threads.run("other", os.getpid)
    mount.is_back.set()
    await hanging
    async with asyncio.timeout(5):
        assert await threads.run("other", os.getpid) == os.getpid()


async def test_a_process_ends_while_a_check_hangs(state_dir: Path, keys: Path) -> None:
    ledger = await Ledger.open(state_dir)
    await ledger.apply([in_s3()])
    await ledger.close()
    async with running(state_dir, "--credentials-dir", str(keys)) as controller:
        pipe = keys / "default" / "s3-key" / "ACCESS_KEY_ID"
        writer = await async_eventually("a reader of the pipe", lambda: writer_of(pipe))
        try:
            assert await controller.end(signal.SIGTERM) == 0
        finally:
            os.close(writer)
