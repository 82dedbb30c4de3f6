"""What the sources of a Dataset have in common: how they are looked at, and how they fail.

A source is looked at again and again; it remembers by what mark (size and times, ETag) it knew
the content, so that only another content is read. What it reads is counted on a few threads, for
counting takes longer than the event loop may be kept waiting.
"""

import asyncio
import posixpath
import time
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import Executor
from functools import partial
from typing import Final, Protocol, TypeVar
from urllib.parse import urlsplit

from common.errors import EdgeAIError
from localcontroller.hooks.samples import COUNTERS, Counter, counter_of

T = TypeVar("T")

DIRECTORY: Final = "dir"
FORMATS: Final = (*COUNTERS, DIRECTORY)
ENDINGS: Final = {".txt": "txt", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
CONNECT_S: Final = 10.0
SILENCE_S: Final = 60.0  # without a byte of what is read
TOTAL_S: Final = 3600.0  # for the whole of one source
TURN_S: Final = 0.1  # on a thread while others wait for it


class SourceError(EdgeAIError):
    """Why a source cannot be counted; `reason` is one word in CamelCase for programs."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason, self.message = reason, message
        super().__init__(message)


class Source(Protocol):
    async def look(self) -> int | None:
        """Samples; None: the content is that of the last look that succeeded.

        Raises: SourceError
        """


class Threads:
    """Runs what must not run on the event loop."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def in_turns(self, work: Generator[None, None, T]) -> T:
        """What `work` returns. It may be left wherever it yields: for others, or for good."""
        while True:
            result = await self.run(partial(_turn, work))
            if result is not None:
                return result[0]

    async def count(self, chunks: AsyncIterator[bytes], counter: Counter) -> int:
        """Samples of all `chunks`, fed one by one. Raises: what `chunks` raises; TimeoutError"""
        while True:
            async with asyncio.timeout(SILENCE_S):
                chunk = await anext(chunks, b"")
            if not chunk:
                return counter.samples
            await self._feed(counter, chunk)

    async def _feed(self, counter: Counter, chunk: bytes) -> None:
        await self.run(lambda: counter.feed(chunk))


def _turn(work: Generator[None, None, T]) -> tuple[T] | None:
    """A part of the work; with the last one its result."""
    end_s = time.monotonic() + TURN_S
    while time.monotonic() < end_s:
        try:
            next(work)
        except StopIteration as end:
            return (end.value,)
    return None


def format_of(declared: str, url: str) -> str:
    """One of FORMATS: as declared, else by the end of the path; "" where that tells nothing.

    Raises: SourceError
    """
    name = declared.lower()
    if not name:
        parts = urlsplit(url)
        path = parts.path if parts.scheme else url  # a file's name may have a "#" or "?"
        return ENDINGS.get(posixpath.splitext(path)[1].lower(), "")
    if name not in FORMATS:
        raise SourceError(
            "UnknownFormat",
            f"spec.format: {declared[:64]!r} cannot be counted; use one of {', '.join(FORMATS)}",
        )
    return name


def counter_for(format_: str, url: str) -> Counter:
    """A fresh counter for the content of a file. Raises: SourceError"""
    if not format_:
        raise SourceError(
            "UnknownFormat",
            f"spec.format: is empty, and the name of {shown(url)} does not tell it; "
            f"use one of {', '.join(FORMATS)}",
        )
    if format_ == DIRECTORY:
        raise SourceError("NotADirectory", f"spec.format: is dir, and {shown(url)} is a file")
    return counter_of(format_)


def shown(url: str) -> str:
    """A URL as it may stand in a message: without a password, and without what signs it."""
    parts = urlsplit(url)
    if not parts.scheme:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
