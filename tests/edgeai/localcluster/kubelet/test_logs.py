"""Logs of containers: kept whole and in bounds, read by options, followed."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edgeai.localcluster.kubelet.logs import LogWriter, read_log
from edgeai.localcluster.objects.containers import LogQuery
from tests.edgeai.localcluster.running import collected
from tests.support.waiting import PATIENCE_S


def query(**fields: object) -> LogQuery:
    return LogQuery(namespace="n", pod="p", uid="u", container="c", **fields)  # type: ignore[arg-type]


def writer(path: Path, limit_bytes: int = 1 << 20) -> LogWriter:
    moment = datetime(2030, 1, 2, tzinfo=UTC)
    return LogWriter(path, limit_bytes=limit_bytes, stamp=lambda: moment)


async def test_log_is_given_back_as_it_was_written(tmp_path: Path) -> None:
    log = writer(tmp_path / "0.log")
    text = b"one\ntwo\n" + b"x" * 50_000 + b"\n\nunfinished"
    for start in range(0, len(text), 7):
        log.write(text[start : start + 7])
    log.close()
    assert await collected(read_log(log.path, query(), None)) == text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"tail_lines": 2}, b"b\nc\n"),
        ({"tail_lines": 0}, b""),
        ({"tail_lines": 1, "timestamps": True}, b"2030-01-02T00:00:00.000000Z c\n"),
    ],
)
async def test_log_options(tmp_path: Path, options: dict[str, object], text: bytes) -> None:
    log = writer(tmp_path / "0.log")
    log.write(b"a\nb\nc\n")
    assert await collected(read_log(log.path, query(**options), None)) == text
    log.close()


async def test_the_last_lines_may_have_carriage_returns(tmp_path: Path) -> None:
    log = writer(tmp_path / "0.log")
    log.write(b"first\n10 %\r 20 %\r\n")
    log.close()
    assert await collected(read_log(log.path, query(tail_lines=1), None)) == (b"10 %\r 20 %\r\n")


def size_of(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.iterdir())


async def test_log_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    log = writer(tmp_path / "0.log", limit_bytes=1000)
    for number in range(1000):
        log.write(b"line %d\n" % number)
    log.close()
    assert size_of(tmp_path) <= 2000
    text = await collected(read_log(log.path, query(), None))
    assert text.endswith(b"line 998\nline 999\n")


async def test_following_misses_nothing_over_rotations(tmp_path: Path) -> None:
    log = writer(tmp_path / "0.log", limit_bytes=200)
    log.write(b"0\n")
    reading = asyncio.create_task(collected(read_log(log.path, query(follow=True), log)))
    for number in range(1, 50):
        await asyncio.sleep(0)
        log.write(b"%d\n" % number)
        await asyncio.sleep(0)
    log.close()
    expected = b"".join(b"%d\n" % number for number in range(50))
    assert await asyncio.wait_for(reading, PATIENCE_S) == expected


async def test_a_log_on_a_full_disk_costs_output_only() -> None:
    log = LogWriter(Path("/dev/full"))
    log.path = Path("/dev/full")
    log.write(b"lost\n")
    log.close()
