"""What takes long is given up in time, and keeps no other Dataset waiting."""

import asyncio
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from localcontroller.hooks import files
from localcontroller.hooks.dataset import MAX_CHECKS
from localcontroller.hooks.sources import DatasetTimeouts
from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.hooks.server import Server, serving
from tests.localcontroller.hooks.world import assign, watching
from tests.waiting import async_eventually


def make_huge(file: Path) -> Path:
    """Hours of reading, of a file that is all hole."""
    with file.open("wb") as opened:
        opened.truncate(2**43)
    return file


async def until_requested(server: Server, count: int) -> None:
    def check() -> bool:
        assert len(server.requests) >= count, f"{len(server.requests)} requests"
        return True

    await async_eventually(f"{count} requests", check)


async def test_a_file_that_is_read_for_too_long_is_given_up(ledger: Ledger, tmp_path: Path) -> None:
    async with watching(ledger, timeouts=DatasetTimeouts(total_s=0.2)) as world:
        await world.hold(url=str(make_huge(tmp_path / "huge.txt")))
        report = await world.report()
        assert report.details["problem"] == "Unreadable"
        assert "huge.txt cannot be read within 0.2 s" in report.reason


async def test_huge_files_keep_no_other_waiting(ledger: Ledger, data: Path) -> None:
    url = str(make_huge(data.with_name("huge.csv")))
    async with watching(ledger, timeouts=DatasetTimeouts(slot_s=0.05)) as world:
        names = [f"huge-{number}" for number in range(MAX_CHECKS)]
        await ledger.apply([assign(name=name, uid=name, url=url) for name in names])
        await world.hold(url=str(data))
        assert await world.samples() == 2


async def test_what_was_slow_keeps_only_its_like_waiting_at_the_next_look(
    ledger: Ledger, data: Path
) -> None:
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


async def test_what_was_quick_again_is_as_any_other(
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
                    pass  # meanwhile what has begun comes
        assert len(server.requests) == 2 + MAX_CHECKS + 30
        server.released.set()
        await world.until_checked(3 + MAX_CHECKS)


async def test_four_are_looked_at_at_a_time(ledger: Ledger) -> None:
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
            pass  # those that had begun before this one have come before it
        assert len(server.requests) == 4 + 1
        server.released.set()
        await world.until_checked(len(names))


def test_a_file_that_has_become_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "faces.csv"
    os.mkfifo(pipe)
    with files.open_without_waiting(pipe) as file:
        assert file.read(1) == b""


def test_a_directory_below_that_goes_away_meanwhile_has_no_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    for name in ("cats", "dogs"):
        (tmp_path / name).mkdir()
    counting = files.count_files(tmp_path)
    next(counting)  # the root is being listed
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


def test_a_directory_that_is_gone_is_no_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        next(files.count_files(tmp_path / "gone"))
