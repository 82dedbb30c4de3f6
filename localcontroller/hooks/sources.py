"""What the sources of a Dataset have in common: how they are looked at, and how they fail.

A source is looked at again and again; it remembers by what mark (size and times, ETag) it knew
the content, so that only another content is read. What it reads is counted on a few threads, for
counting takes longer than the event loop may be kept waiting; so may storage, without end.
"""

import asyncio
import contextlib
import posixpath
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import Future
from functools import partial
from typing import Final, Protocol, TypeVar
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

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
    """Runs what must not run on the event loop, for each URL one thing at a time.

    What hangs, as storage that is gone does, cannot be ended. So it may keep its thread, but gives
    back its place; what comes next for the URL waits for it; and the process ends without it.

    Args: places: how many things run at a time; place_s: after which one runs beside them
    """

    def __init__(self, places: int, *, place_s: float) -> None:
        self._places = asyncio.Semaphore(places)
        self._place_s = place_s
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by URL

    async def run(self, url: str, work: Callable[[], T]) -> T:
        """What `work` returns or raises; it goes on when nobody waits for it any more."""
        lock = self._locks.setdefault(url, asyncio.Lock())
        await lock.acquire()
        future: Future[T] = Future()
        future.add_done_callback(partial(_release, lock, asyncio.get_running_loop()))
        done = asyncio.wrap_future(future)
        try:
            async with self._places:
                # A daemon, unlike those of an Executor, is not joined when the process ends.
                args = (future, work)
                threading.Thread(target=_fulfil, args=args, name="dataset", daemon=True).start()
                await asyncio.wait({done}, timeout=self._place_s)
            return await done
        finally:
            done.cancel()  # what has not begun never will, and lets the lock go

    async def in_turns(self, url: str, work: Generator[None, None, T]) -> T:
        """What `work` returns. It may be left wherever it yields: for others, or for good."""
        while True:
            result = await self.run(url, partial(_turn, work))
            if result is not None:
                return result[0]

    async def count(self, url: str, chunks: AsyncIterator[bytes], counter: Counter) -> int:
        """Samples of all `chunks`, fed one by one. Raises: what `chunks` raises; TimeoutError"""
        while True:
            async with asyncio.timeout(SILENCE_S):
                chunk = await anext(chunks, b"")
            if not chunk:
                return counter.samples
            await self.run(url, partial(counter.feed, chunk))


def _fulfil(future: Future[T], work: Callable[[], T]) -> None:
    """On the thread."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - whoever waits for it has to know
        future.set_exception(error)


def _release(lock: asyncio.Lock, loop: asyncio.AbstractEventLoop, _: Future[T]) -> None:
    """From any thread."""
    with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
        loop.call_soon_threadsafe(lock.release)


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
