"""Splits the bytes of a watch into lines, each of which is one JSON document; and those of a log.

The splitter holds at most one incomplete line, of limited length. The splitter cuts a longer line
off and yields its beginning, which names the object. So one huge object does not end the watch.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Final

import aiohttp

from edgeai.kube import errors
from edgeai.kube.objects import MAX_OBJECT_BYTES
from edgeai.kube.sender import ApiRequest

MAX_LINE_BYTES: Final = MAX_OBJECT_BYTES + 1024  # an object and the event that wraps it
MAX_LOG_LINE_BYTES: Final = 64 * 1024
SKIPPED_BYTES_PER_S: Final = 1024 * 1024  # of a log


class LineSplitter:
    """Takes bytes and yields lines without their ends. Skips blank lines, cuts long lines off."""

    def __init__(self, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._parts: list[bytes] = []  # pieces of the incomplete line
        self._pending_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._keep(piece)
            line = b"".join(self._parts).strip()
            self._parts, self._pending_bytes = [], 0
            if line:
                yield line
        if rest:
            self._keep(rest)

    def _keep(self, piece: bytes) -> None:
        part = piece[: self._max_line_bytes - self._pending_bytes]
        if part:
            self._pending_bytes += len(part)
            self._parts.append(part)


async def lines_of(
    response: aiohttp.ClientResponse, request: ApiRequest, end_within_s: float
) -> AsyncGenerator[bytes, None]:
    """The lines of a watch. Raises: Silent when the watch has not ended in time"""
    splitter = LineSplitter()
    end_at = asyncio.get_running_loop().time() + end_within_s
    try:
        while True:
            async with asyncio.timeout_at(end_at):
                data = await response.content.readany()
            if not data:
                return
            for line in splitter.feed(data):
                yield line
    except TimeoutError as error:
        problem = f"not ended after {end_within_s:g} s"
        raise request.failed(errors.Silent, problem) from error


async def log_lines(
    response: aiohttp.ClientResponse, request: ApiRequest, silence_s: float | None
) -> AsyncGenerator[bytes, None]:
    """The lines of a log. The last line may lack its end.

    Args: silence_s: longest pause between two pieces; None: any
    Raises: Silent after a longer pause
    """
    splitter = LineSplitter(max_line_bytes=MAX_LOG_LINE_BYTES)
    data = b"\n"
    while data:
        try:
            async with asyncio.timeout(silence_s):
                data = await response.content.readany()
        except TimeoutError as error:
            raise request.failed(errors.Silent, f"nothing came for {silence_s:g} s") from error
        skipped = len(data)
        for line in splitter.feed(data or b"\n"):
            skipped -= len(line)
            yield line
        # A reader holds back lines, and would read without pause what gives none.
        await asyncio.sleep(max(0, skipped) / SKIPPED_BYTES_PER_S)
