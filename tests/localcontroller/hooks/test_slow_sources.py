"""Slow sources fail after their time limit, and the checks of other Datasets go on."""

import asyncio
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from localcontroller.hooks import files
from localcontroller.hooks.dataset import MAX_CHECKS
from localcontroller.hooks.sources import SourceTimeouts
from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.hooks.server import Server, serving
from tests.localcontroller.hooks.world import assign, watching
from tests.support.waiting import async_eventually


def make_huge(file: Path) -> Path:
    """A sparse file of 8 TiB: reading it would take hours."""
    with file.open("wb") as opened:
        opened.truncate(2**43)
    return file


async def until_requested(server: Server, count: int) -> None:
    def check() -> bool:
        assert len(server.requests) >= count, f"{len(server.requests)} requests"
        return True

    await async_eventually(f"{count} requests", check)


async def test_a_file_that_is_read_for_too_long_is_given_up(ledger: Ledger, tmp_path: Path) -> None:
    async with watching(ledger, timeouts=SourceTimeouts(total_s=0.2)) as world:
        await world.hold(url=str(make_huge(tmp_path / "huge.txt")))
        report = await world.report()
        assert report.details["problem"] == "Unreadable"
        assert "huge.txt cannot be read within 0.2 s" in report.reason


async def test_other_datasets_are_counted_while_huge_files_are_read(
    ledger: Ledger, data: Path
) -> None:
    url = str(make_huge(data.with_name("huge.csv")))
    async with watching(ledger, timeouts=SourceTimeouts(slot_s=0.05)) as world:
        names = [f"huge-{number}" for number in range(MAX_CHECKS)]
        await ledger.apply([assign(name=name, uid=name, url=url) for name in names])
        await world.hold(url=str(data))
        assert await world.samples() == 2


async def test_slow_datasets_wait_only_for_other_slow_datasets(ledger: Ledger, data: Path) -> None:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(text="x\n")

    async def silent(_request: web.Request) -> web.StreamResponse:
        await server.released.wait()
        return web.Response(text="x\n")

    async with serving(answer) as server, watching(ledger) as world:
        world.pauses.slot_s = 0.0  # so each check is a slow one
        names = [f"slow-{number}" for number in range(2 * MAX_CHECKS)]
        url = f"{server.url}/data.csv"
        await ledger.apply([assign(name=name, uid=name, url=url) for name in names])
        await world.until_checked(len(names))
        world.pauses.slot_s = 3600.0
        server.answer = silent
        world.pauses.end_period()
        await until_requested(server, len(names) + MAX_CHECKS)
        async with asyncio.timeout(5):
            await world.hold(url=str(data))
        assert (await ledger.workers())[0].worker.numbers == {"numberOfSamples": 2}
        server.released.set()
        await world.until_checked(2 * len(names) + 1)
        assert len(server.requests) == 2 * len(names)


async def test_a_slow_dataset_that_is_quick_again_uses_an_ordinary_slot(
    ledger: Ledger,
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/silent.csv":
            await server.released.wait()
        return web.Response(text="x\n")

    async with serving(answer) as server, watching(ledger) as world:
        world.pauses.slot_s = 0.0  # so the first check is a slow one
        await world.hold(url=f"{server.url}/data.csv")
        world.pauses.slot_s = 3600.0
        await world.check_again()
        url = f"{server.url}/silent.csv"
        names = [f"silent-{number}" for number in range(MAX_CHECKS)]
        await ledger.apply([assign(name=name, uid=name, url=url) for name in names])
        await until_requested(server, 2 + MAX_CHECKS)
        world.pauses.end_period()
        async with ClientSession() as session:
            for _ in range(30):
                async with session.get(server.url):
                    pass  # meanwhile the requests of all running checks arrive
        assert len(server.requests) == 2 + MAX_CHECKS + 30
        server.released.set()
        await world.until_checked(3 + MAX_CHECKS)


async def test_four_datasets_are_checked_at_a_time(ledger: Ledger) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/data"):
            await server.released.wait()
        return web.Response(text="x\n")

    async with serving(answer) as server, watching(ledger) as world:
        url = f"{server.url}/data.csv"
        names = [f"data-{number}" for number in range(8)]
        await ledger.apply([assign(name=name, uid=name, url=url) for name in names])
        await until_requested(server, 4)
        async with ClientSession() as session, session.get(server.url):
            pass  # the requests of checks that began before have arrived now
        assert len(server.requests) == 4 + 1
        server.released.set()
        await world.until_checked(len(names))


def test_opening_a_file_that_has_become_a_pipe_does_not_block(tmp_path: Path) -> None:
    pipe = tmp_path / "faces.csv"
    os.mkfifo(pipe)
    with files.open_without_waiting(pipe) as file:
        assert file.read(1) == b""


def test_a_subdirectory_that_is_deleted_during_the_count_has_no_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
    counting = files.count_files(tmp_path)
    next(counting)  # the listing of the root has begun
    (tmp_path / "cats").rmdir()
    (tmp_path / "dogs").rmdir()
    (tmp_path / "dogs").touch()
    assert finish(counting) == 1


def finish(counting: Generator[None, None, int]) -> int:
    while True:
        try:
            next(counting)
        except StopIteration as end:
            return int(end.value)


def test_a_directory_that_is_gone_does_not_count_as_empty(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        next(files.count_files(tmp_path / "gone"))
