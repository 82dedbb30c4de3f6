"""Log files of containers: each line has a time, each file has a largest size.

Clients can read a log while its container runs.

    containers/<name>/logs/<run>.log      <run> counts the container's starts, from 0
    containers/<name>/logs/<run>.log.1    the part before the last rotation

One line of a file is `<RFC 3339 time> <F|P> <text>`. F marks a full line. P marks a part of a line
that the next line continues. `container` writes the files. The API reads the files for /log.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from common.logs import get_logger
from edgeai import times
from edgeai.localcluster.objects.containers import LogQuery

log = get_logger(__name__)

LINE_LIMIT_BYTES: Final = 16 << 10
LOG_LIMIT_BYTES: Final = 10 << 20
"""Each run keeps two files of this size at most."""


class LogWriter:
    """Writes the output of one run. `write` never raises, so a full disk ends no container.

    On a full disk the output is lost.

    Args:
        path: log file of the run
        limit_bytes: a file beyond this size is rotated; one rotated file stays
        stamp: UTC clock
    """

    def __init__(
        self, path: Path, *, limit_bytes: int = LOG_LIMIT_BYTES, stamp: times.Clock = times.utc_now
    ) -> None:
        self.path = path
        self._limit_bytes = limit_bytes
        self._stamp = stamp
        self._pending = b""  # the last line, as long as its newline is missing
        self.size_bytes = 0  # of the run, with all that is not kept any more
        self._first_byte = 0  # of the run in the current file
        self._failed = False
        self._file: BinaryIO | None = None
        self.is_open = True
        self.change = asyncio.Event()  # set at the next change; each change has a new Event
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")  # a run without output has an empty log
        rotated(path).unlink(missing_ok=True)

    def write(self, data: bytes) -> None:
        *lines, self._pending = (self._pending + data).split(b"\n")
        entries = [entry for line in lines for entry in _entries(line)]
        while len(self._pending) >= LINE_LIMIT_BYTES:
            entries.append((b"P", self._pending[:LINE_LIMIT_BYTES]))
            self._pending = self._pending[LINE_LIMIT_BYTES:]
        self._append(entries)

    def close(self) -> None:
        """Close the log after the run's end. Write a last line without newline as a part."""
        if self._pending:
            self._append([(b"P", self._pending)])
            self._pending = b""
        if self._file:
            self._file.close()
            self._file = None
        self.is_open = False
        self.change.set()

    def since(self, position: int) -> bytes:
        """What the run has written after its first `position` bytes, as far as it is kept."""
        ahead = position - self._first_byte
        kept = b""
        with contextlib.suppress(FileNotFoundError):  # the pod may be gone
            if ahead < 0:
                kept = rotated(self.path).read_bytes()[ahead:]
            with open(self.path, "rb") as file:
                file.seek(max(ahead, 0))
                kept += file.read()
        return kept

    def _append(self, entries: list[tuple[bytes, bytes]]) -> None:
        if not entries:
            return
        time = times.micro_time(self._stamp()).encode()
        block = b"".join(b"%s %s %s\n" % (time, flag, text) for flag, text in entries)
        try:
            self._write_block(block)
            self._failed = False
        except OSError as error:
            if not self._failed:
                log.warning("container output is lost", file=str(self.path), error=str(error))
            self._failed = True
        self.change.set()
        self.change = asyncio.Event()

    def _write_block(self, block: bytes) -> None:
        file_bytes = self.size_bytes - self._first_byte
        if self._file and file_bytes + len(block) > self._limit_bytes:
            self._file.close()
            self._file = None
            self.path.replace(rotated(self.path))
            self._first_byte = self.size_bytes
        if self._file is None:
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - kept open
        self.size_bytes += self._file.write(block)


def _entries(line: bytes) -> Iterator[tuple[bytes, bytes]]:
    while len(line) > LINE_LIMIT_BYTES:
        yield b"P", line[:LINE_LIMIT_BYTES]
        line = line[LINE_LIMIT_BYTES:]
    yield b"F", line


def rotated(path: Path) -> Path:
    return path.with_name(path.name + ".1")


async def read_log(path: Path, query: LogQuery, writer: LogWriter | None) -> AsyncIterator[bytes]:
    """The log of one run, in pieces. With `query.follow` the log continues until the run ends.

    Args:
        path: log file of the run
        writer: of the run; None if the run began before the last start of the cluster
    Raises: FileNotFoundError when the run has no log
    """
    files = [file for file in (rotated(path), path) if file.exists()]
    if not files and not writer:
        raise FileNotFoundError(path)
    position = writer.size_bytes if writer else 0
    lines = _lines(b"".join(file.read_bytes() for file in files))
    if query.tail_lines is not None:
        lines = _tail(lines, query.tail_lines)
    for line in lines:
        yield _formatted(line, timestamps=query.timestamps)
    while query.follow and writer:
        change, is_open = writer.change, writer.is_open
        lines, position = _lines(writer.since(position)), writer.size_bytes
        for line in lines:
            yield _formatted(line, timestamps=query.timestamps)
        if not is_open:
            return
        await change.wait()


def _lines(text: bytes) -> list[bytes]:
    return [line for line in text.split(b"\n") if line]


def _tail(lines: list[bytes], count: int) -> list[bytes]:
    """The last `count` lines of a log. The parts of a long line count as one line."""
    last = len(lines) - 1
    ends = [index for index, line in enumerate(lines) if index == last or not _is_partial(line)]
    return lines[ends[-count - 1] + 1 :] if len(ends) > count else lines


def _is_partial(line: bytes) -> bool:
    return line.split(b" ", 2)[1:2] == [b"P"]


def _formatted(line: bytes, *, timestamps: bool) -> bytes:
    time, flag, text = line.split(b" ", 2)
    ending = b"" if flag == b"P" else b"\n"
    return (time + b" " if timestamps else b"") + text + ending
