"""The Dataset hook with files on the node: counts, checks, reports, problems."""
# ruff: noqa: ASYNC240 - the tests have the event loop for themselves

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from common import wire
from common.node_paths import DEFAULT_PREFIXES
from localcontroller.hooks import dataset, files
from localcontroller.hooks.dataset import SourceFactory
from localcontroller.hooks.files import PathSource
from localcontroller.hooks.sources import (
    DEFAULT_TIMEOUTS,
    CountRequest,
    DatasetSource,
    SourceOptions,
    SourceSpec,
    SourceThreads,
    SourceTimeouts,
)
from localcontroller.ledger.ledger import MAX_REASON_CHARS, Ledger
from tests.localcontroller.hooks.world import UID, assign, key, watching
from tests.support.waiting import async_eventually


async def test_a_new_dataset_is_counted_and_reported(ledger: Ledger, data: Path) -> None:
    async with watching(ledger) as world:
        await world.hold(url=str(data), format="csv", version=7)
        (outgoing,) = await world.owed()
        report = await world.report()
        assert (outgoing.uid, outgoing.worker, outgoing.attempt) == ("uid-d", "faces", 1)
        assert report.status == "running"
        assert report.task_info == {"numberOfSamples": 2}
        assert report.details["generation"] == "7"
        assert report.details["updateTime"].endswith("Z")


async def test_a_changed_file_is_counted_again(ledger: Ledger, data: Path) -> None:
    async with watching(ledger) as world:
        await world.hold(url=str(data))
        data.write_text("x,y\n1,2\n3,4\n5,6\n")
        await world.check_again()
        assert await world.samples() == 3


async def test_a_file_that_changed_at_the_same_size_is_counted_again(
    ledger: Ledger, data: Path
) -> None:
    async with watching(ledger) as world:
        await world.hold(url=str(data))
        before = data.stat()
        data.write_text("x\n1\n2\n3\n4,5\n")
        os.utime(data, ns=(before.st_atime_ns, before.st_mtime_ns))
        after = data.stat()
        assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
        await world.check_again()
        assert await world.samples() == 4


def source_of(file: Path, format_: str = "csv") -> PathSource:
    threads = SourceThreads(1, DEFAULT_TIMEOUTS)
    request = CountRequest(str(file), format_, threads, DEFAULT_TIMEOUTS)
    return PathSource(request, files.NODE_ROOT, DEFAULT_PREFIXES)


async def test_a_file_that_did_not_change_is_not_read(data: Path) -> None:
    source = source_of(data)
    assert await source.count_if_changed() == 2
    assert await source.count_if_changed() is None
    data.touch()
    assert await source.count_if_changed() == 2


@pytest.mark.parametrize("field", ["st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns"])
async def test_a_change_of_one_field_of_the_fingerprint_is_a_change(
    field: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real changes alter several fields at once, which would hide a field that is not compared."""
    source, real = source_of(data), os.stat
    assert await source.count_if_changed() == 2

    def stat(*args: Any, **options: Any) -> SimpleNamespace:
        found = real(*args, **options)
        fields = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return SimpleNamespace(**{**fields, field: fields[field] + 1})

    monkeypatch.setattr(os, "stat", stat)
    assert await source.count_if_changed() == 2


async def test_a_write_during_a_check_is_counted_by_the_next_check(
    tmp_path: Path,
) -> None:
    file = tmp_path / "large.txt"
    file.touch()
    os.truncate(file, 2**28)  # more than one turn
    source = source_of(file, "txt")
    check = asyncio.create_task(source.count_if_changed(), name="check")
    await async_eventually("a file that is being read", lambda: position_in(file))
    with file.open("r+b") as opened:
        opened.write(b"one\ntwo\nthree\n")
    assert await check == 1  # one line: the check read the file before the write
    assert await source.count_if_changed() == 4


def position_in(file: Path) -> int:
    """The offset up to which this process has read the file; 0: the file is not open."""
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(fd) == str(file):
                return int(Path(f"/proc/self/fdinfo/{fd.name}").read_text().split()[1])
    return 0


def disk(directory: Path) -> dict[str, tuple[int, int]]:
    """File -> (size, mtime in ns)."""
    found = {file.name: file.stat() for file in directory.iterdir()}
    return {name: (each.st_size, each.st_mtime_ns) for name, each in found.items()}


async def test_a_settled_dataset_writes_nothing(
    ledger: Ledger, data: Path, state_dir: Path
) -> None:
    async with watching(ledger) as world:
        await world.hold(url=str(data))
        before, written = ledger.view, disk(state_dir)
        assert any(name.startswith("ledger.db") for name in written)
        data.touch()  # the file is read again and has the same number of samples
        await world.check_again()
        await world.check_again()
        assert ledger.view is before
        assert disk(state_dir) == written


async def test_a_restart_reports_nothing_that_was_reported(ledger: Ledger, data: Path) -> None:
    async with watching(ledger) as world:
        await world.hold(url=str(data))
    revision = ledger.view.revision
    async with watching(ledger) as world:
        await world.check_again()
        assert ledger.view.revision == revision


async def test_the_period_has_jitter(ledger: Ledger, data: Path) -> None:
    async with watching(ledger, SourceOptions(poll_s=100.0)) as world:
        await world.hold(url=str(data))
        for _ in range(20):
            await world.check_again()
        waited = world.pauses.periods_s
        assert all(90 <= each <= 110 for each in waited)
        assert max(waited) - min(waited) > 1


# ---- problems ------------------------------------------------------------------------------------


def remove(file: Path) -> None:
    file.unlink()


def make_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def make_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def make_loop(file: Path) -> None:
    file.unlink()
    file.symlink_to(file)


PROBLEMS: dict[str, tuple[Any, dict[str, str], str, str]] = {
    "no such file": (remove, {}, "NotFound", "does not exist"),
    "a directory": (make_directory, {}, "IsADirectory", "use format dir"),
    "a pipe": (make_pipe, {}, "Unreadable", "is no file"),
    "a link to itself": (make_loop, {}, "Unreadable", "cannot be read: Too many levels"),
    "unknown format": (None, {"format": "parquet"}, "UnknownFormat", "spec.format: 'parquet'"),
    "no format": (None, {"url": "/data/faces.bin"}, "NotFound", "does not exist"),
    "dir is a file": (None, {"format": "dir"}, "NotADirectory", "spec.format: is dir"),
    "a scheme": (None, {"url": "ftp://host/a.csv"}, "InvalidURL", "'ftp'"),
    "a relative path": (None, {"url": "a.csv"}, "InvalidURL", "no absolute path"),
    "a way out": (None, {"url": "/data/../etc/a.csv"}, "InvalidURL", "no absolute path"),
    "a NUL": (None, {"url": "/data/a\0.csv"}, "InvalidURL", "no absolute path"),
    "no URL": (None, {"url": "http://[::1/a.csv"}, "InvalidURL", "is no URL"),
}


@pytest.mark.parametrize("case", PROBLEMS)
async def test_a_problem_is_reported(case: str, ledger: Ledger, data: Path) -> None:
    spoil, fields, reason, text = PROBLEMS[case]
    if spoil is not None:
        spoil(data)
    async with watching(ledger) as world:
        await world.hold(**{"url": str(data), **fields})
        report = await world.report()
        assert (report.status, report.details["problem"]) == ("lost", reason)
        assert text in report.reason
        assert report.task_info == {}


async def test_an_empty_format_of_a_file_that_does_not_tell_it(ledger: Ledger, data: Path) -> None:
    async with watching(ledger) as world:
        await world.hold(url=str(data.rename(data.with_suffix(".bin"))))
        report = await world.report()
        assert report.details["problem"] == "UnknownFormat"
        assert "use one of txt, csv, jsonl, dir" in report.reason


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
async def test_a_file_that_may_not_be_read(ledger: Ledger, data: Path) -> None:
    data.chmod(0)
    async with watching(ledger) as world:
        await world.hold(url=str(data))
        assert await world.problem() == "Forbidden"


async def test_a_problem_heals_even_with_the_same_content(ledger: Ledger, data: Path) -> None:
    link = data.with_name("link.csv")
    link.symlink_to(data)
    async with watching(ledger) as world:
        await world.hold(url=str(link))
        link.unlink()
        await world.check_again()
        assert await world.problem() == "NotFound"
        link.symlink_to(data)
        await world.check_again()
        assert await world.problem() is None
        assert await world.samples() == 2


async def test_a_problem_that_stays_is_reported_once(ledger: Ledger, data: Path) -> None:
    data.unlink()
    async with watching(ledger) as world:
        await world.hold(url=str(data))
        before = ledger.view
        await world.check_again()
        assert ledger.view is before


async def test_the_text_of_a_problem_is_bounded(ledger: Ledger) -> None:
    async with watching(ledger) as world:
        await world.hold(url="/" + "a" * 5000)
        assert len((await world.report()).reason) == MAX_REASON_CHARS


async def test_a_file_in_utf_16_is_reported_as_unreadable(ledger: Ledger, data: Path) -> None:
    data.write_text("x,y\n1,2\n", encoding="utf-16")
    async with watching(ledger) as world:
        await world.hold(url=str(data))
        report = await world.report()
        assert report.details["problem"] == "Unreadable"
        assert report.reason.startswith("spec.url: the content is UTF-16")


async def test_an_unexpected_error_of_a_source_is_a_problem_of_its_dataset_alone(
    ledger: Ledger,
) -> None:
    class Faulty(SourceFactory, frozen=True):
        async def create(self, namespace: str, spec: SourceSpec) -> DatasetSource:
            raise RuntimeError

    await ledger.apply([assign(url="/data/a.csv")])
    (task,) = await ledger.tasks(dataset.PLURAL)
    faulty = dataset.HeldDataset(
        task, Faulty(SourceOptions(), SourceThreads(1, DEFAULT_TIMEOUTS), DEFAULT_TIMEOUTS)
    )
    await faulty.check()
    message = faulty.message()
    assert (message.details["problem"], message.reason) == ("InternalError", "RuntimeError")


# ---- a ledger that refuses -----------------------------------------------------------------------


async def test_a_report_that_is_not_granted_is_not_repeated(ledger: Ledger, data: Path) -> None:
    """The hook still checks the Dataset."""
    body = wire.AssignmentBody("default", "faces", {"url": str(data)}, {})
    async with watching(ledger) as world:
        await ledger.apply([wire.Assign(1, key(), UID, 1, wire.pack(body))])
        await world.until_checked(1)
        assert await world.owed() == []
        await world.check_again()


CANNOT_READ = "cannot read tasks, retrying"


def events(logs: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [line["event"] for line in logs]


async def test_a_ledger_that_cannot_be_read_yet_is_read_again(
    ledger: Ledger, data: Path, state_dir: Path
) -> None:
    away = state_dir.rename(state_dir.with_name("away"))
    with capture_logs() as logs:
        async with watching(ledger, timeouts=SourceTimeouts(ledger_retry_s=0.01)) as world:
            await async_eventually("a read that fails", lambda: events(logs).count(CANNOT_READ))
            away.rename(state_dir)
            await world.hold(url=str(data))
            assert await world.samples() == 2


# ---- where and what -----------------------------------------------------------------------------


async def test_the_files_of_a_directory_are_counted(ledger: Ledger, tmp_path: Path) -> None:
    images = tmp_path / "images"
    (images / "cats").mkdir(parents=True)
    for name in ("a.png", "cats/b.png", "cats/c.png"):
        (images / name).touch()
    (images / "link.png").symlink_to(images / "a.png")
    (images / "loop").symlink_to(images)
    async with watching(ledger) as world:
        await world.hold(url=str(images))
        assert await world.samples() == 3
        (images / "cats" / "d.png").touch()
        await world.check_again()
        assert await world.samples() == 4


@pytest.mark.parametrize("name", ["a#b.csv", "a?b.csv", "a:b.csv"])
async def test_a_path_may_contain_the_separators_of_a_url(
    name: str, ledger: Ledger, tmp_path: Path
) -> None:
    """A "?" or "#" in a path begins no query and no fragment."""
    file = tmp_path / name
    file.write_text("x\n1\n")
    async with watching(ledger) as world:
        await world.hold(url=str(file))
        assert await world.samples() == 1


async def test_a_dataset_with_a_new_spec_is_counted_anew(ledger: Ledger, data: Path) -> None:
    async with watching(ledger) as world:
        await world.hold(url=str(data), version=1)
        await world.hold(url=str(data), format="txt", version=2)
        report = await world.report()
        assert report.task_info == {"numberOfSamples": 3}
        assert report.details["generation"] == "2"


async def test_a_withdrawn_dataset_is_not_checked_any_more(ledger: Ledger, data: Path) -> None:
    async with watching(ledger) as world:
        await world.hold(url=str(data))
        await world.hold(url=str(data), name="other", uid="uid-o")
        await ledger.apply([wire.Withdraw(1, key(), UID)])
        data.write_text("x\n")
        checks = len(world.pauses.periods_s)
        await world.check_again()
        assert len(world.pauses.periods_s) == checks + 1
        (row,) = await ledger.workers()
        assert (row.name, row.worker.numbers) == ("other", {"numberOfSamples": 0})


async def test_a_dataset_that_leaves_and_returns_is_reported_again(
    ledger: Ledger, data: Path
) -> None:
    """The withdrawal and the return are one commit, so the set of held tasks is the same."""
    async with watching(ledger) as world:
        await world.hold(url=str(data))
        back = assign(url=str(data))
        await ledger.apply([wire.Withdraw(1, key(), UID), back])
        assert await world.owed() == []
        await world.check_again()
        assert await world.samples() == 2


async def test_no_secret_gives_the_right_to_report_for_a_dataset(
    ledger: Ledger, data: Path
) -> None:
    async with watching(ledger) as world:
        await world.hold(url=str(data))
        assert ledger.view.grants == {}
        assert ledger.grant("") is None
