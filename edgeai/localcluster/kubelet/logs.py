"""Log files of containers: each line has a time, each file has a largest size.

Clients can read a log while its container runs.

    containers/<name>/logs/<run>.log      <run> counts the container's starts, from 0
    containers/<name>/logs/<run>.log.1    the part before the last rotation

One line of a file is `<RFC 3339 time> <F|P> <text>`. F marks a full line. P marks a part of a line
that the next line continues. `container` writes the files. The API reads the files for /log.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from common.logs import get_logger
from edgeai import times
from edgeai.localcluster.objects.containers import LogQuery

log = get_logger(__name__)

LINE_LIMIT_BYTES: Final = 16 << 10
LOG_LIMIT_BYTES: Final = 10 << 20


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
        self._size_bytes = 0
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
        if self._file and self._size_bytes + len(block) > self._limit_bytes:
            self._file.close()
            self._file = None
            self.path.replace(rotated(self.path))
        if self._file is None:
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - kept open
            self._size_bytes = 0
        self._size_bytes += len(block)
        self._file.write(block)


def _entries(line: bytes) -> Iterator[tuple[bytes, bytes]]:
    while len(line) > LINE_LIMIT_BYTES:
        yield b"P", line[:LINE_LIMIT_BYTES]
        line = line[LINE_LIMIT_BYTES:]
    yield b"F", line


def rotated(path: Path) -> Path:
    return path.with_name(path.name + ".1")


async def read_log(
    path: Path, query: LogQuery, writer: Callable[[], LogWriter | None]
) -> AsyncIterator[bytes]:
    """The log of one run, in pieces. With `query.follow` the log continues until the run ends.

    Args:
        path: log file of the run
        writer: returns the writer of the log; returns None if the run began before the last
            start of the cluster
    Raises: FileNotFoundError when the run has no log
    """
    with contextlib.ExitStack() as stack:
        opened = [_open(rotated(path)), _open(path)]
        files = [stack.enter_context(file) for file in opened if file]
        if not files and not writer():
            raise FileNotFoundError(path)
        lines: Iterator[bytes] = (line for file in files for line in file)
        if query.tail_lines is not None:
            lines = iter(_tail(lines, query.tail_lines))
        for line in lines:
            yield _formatted(line, timestamps=query.timestamps)
        if query.follow:
            async for line in _follow(path, opened[1], writer):
                yield _formatted(line, timestamps=query.timestamps)


def _tail(lines: Iterator[bytes], count: int) -> deque[bytes]:
    """The last `count` lines of a log. The parts of a long line count as one line."""
    whole_lines: deque[list[bytes]] = deque(maxlen=count)
    parts: list[bytes] = []
    for line in lines:
        parts.append(line)
        if not _is_partial(line):
            whole_lines.append(parts)
            parts = []
    if parts:
        whole_lines.append(parts)
    return deque(part for whole in whole_lines for part in whole)


async def _follow(
    path: Path, current: BinaryIO | None, writer: Callable[[], LogWriter | None]
) -> AsyncIterator[bytes]:
    """Yield the lines that the writer appends from now on, also after rotations."""
    file = current
    try:
        while source := writer():
            change, is_open = source.change, source.is_open
            if file is None:
                file = _open(path)
            for line in file or ():
                yield line
            if file and not _is_same(path, file):
                if file is not current:
                    file.close()
                file = None
                continue
            if not is_open:
                return
            await change.wait()
    finally:
        if file is not None and file is not current:
            file.close()


def _open(path: Path) -> BinaryIO | None:
    try:
        return open(path, "rb")
    except FileNotFoundError:
        return None


def _is_same(path: Path, file: BinaryIO) -> bool:
    """Whether `path` is still the open file. A rotation puts another file at `path`."""
    try:
        return path.stat().st_ino == Path(f"/proc/self/fd/{file.fileno()}").stat().st_ino
    except FileNotFoundError:
        return True


def _is_partial(line: bytes) -> bool:
    return line.split(b" ", 2)[1:2] == [b"P"]


def _formatted(line: bytes, *, timestamps: bool) -> bytes:
    time, flag, text = line.rstrip(b"\n").split(b" ", 2)
    ending = b"" if flag == b"P" else b"\n"
    return (time + b" " if timestamps else b"") + text + ending
