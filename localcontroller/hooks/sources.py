"""What all sources of Datasets and Models share: their interfaces, errors, settings, and threads.

A source is a file, an HTTP URL or an S3 URL. The Dataset hook checks each source again and again. A
source remembers a fingerprint of its content (size and times, or ETag), and reads the content again
only if the fingerprint has changed. Reading and counting run on a few threads, because counting
takes too long for the event loop, and storage that is gone may block for ever.
"""

import asyncio
import contextlib
import posixpath
import queue
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from concurrent.futures import Future
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import msgspec

from common.node_paths import DEFAULT_PREFIXES
from edgeai.errors import EdgeAIError
from localcontroller.hooks.addresses import Network
from localcontroller.hooks.samples import COUNTERS, SampleCounter, sample_counter

T = TypeVar("T")

DIRECTORY: Final = "dir"
FORMATS: Final = (*COUNTERS, DIRECTORY)
ENDINGS: Final = {".txt": "txt", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
IDLE_THREAD_S: Final = 10.0  # a thread without a call ends
TURN_S: Final = 0.1  # longest work of one source on a thread before other sources get the thread


HTTP_CLIENT: Final = "localcontroller.hooks.web"
S3_CLIENT: Final = "localcontroller.hooks.bucket"


async def load(client: str) -> None:
    """Import a client on first use: that of HTTP takes 7 MiB, and that of S3 4 MiB.

    The import takes 100 ms and more, in which the event loop would commit no Assign.
    """
    await asyncio.to_thread(import_module, client)


class SourceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the data of the node is, and how often the hook checks a Dataset."""

    poll_s: float = 60.0
    """Period of the checks of one Dataset, seconds."""
    data_root: Path | None = None
    """The directory where this process sees the node's root; None: "/"."""
    networks: tuple[Network, ...] = ()
    """Networks that URLs may lead to beside the allowed ones. See `addresses`."""
    node_path_prefixes: tuple[str, ...] = DEFAULT_PREFIXES
    """Directories of the node below which Datasets may be. See common.node_paths."""
    credentials_dir: Path | None = None
    """See KeyFiles."""


class SourceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The spec of a Dataset, which has a format, or of a Model, from its assignment."""

    url: str
    credential_name: str = ""
    format: str = ""
    sha256: str = ""


class SourceTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of the waits for sources, seconds."""

    connect_s: float = 10.0
    """Limit for connecting to the server of a source."""
    answer_s: float = 5.0
    """Time without an answer after which a Model says so."""
    progress_s: float = 60.0
    """Time from one report of the progress of a download to the next."""
    silence_s: float = 60.0
    """Longest time without a byte from the server. After this time the check has failed."""
    total_s: float = 3600.0
    """Limit for one check of a Dataset. The content of a Model may take longer."""
    bucket_retry_s: float = 30.0
    """Limit for all retries of one request to a bucket."""
    slot_s: float = 10.0
    """A check that takes longer gives its slot to another check, and goes on without a slot."""
    ledger_retry_s: float = 5.0
    """Delay from a failed operation of the ledger to the next try."""


DEFAULT_TIMEOUTS: Final = SourceTimeouts()


class SourceError(EdgeAIError):
    """A source cannot be read. `reason` is one CamelCase word for programs.

    Args: detail: what only the log of the node says
    """

    def __init__(self, reason: str, message: str, detail: str = "") -> None:
        self.reason, self.message, self.detail = reason, message, detail
        super().__init__(message)


class RangeRefused(SourceError):
    """The server cannot go on where a download ended."""


class CountRequest(NamedTuple):
    """What to count, and the means."""

    url: str
    format: str
    """One of FORMATS; "": the node cannot tell."""
    threads: "SourceThreads"
    timeouts: SourceTimeouts


class DatasetSource:
    """The source of one Dataset: it counts the samples."""

    def __init__(self, request: CountRequest) -> None:
        self._url, self._format, self._threads, self._timeouts = request

    async def count_if_changed(self) -> int | None:
        """Count the samples. None: the content has not changed since the last successful call.

        Raises: SourceError
        """
        raise NotImplementedError


class Download(NamedTuple):
    """Content on its way, from byte `start` on."""

    start: int
    size: int | None
    """Bytes of the whole content; None: not known."""
    tag: str
    """Changes with the content; "": the server does not say."""
    chunks: AsyncGenerator[bytes, None]
    """Raises: SourceError"""


class Route(NamedTuple):
    """How a node reaches the server of content."""

    networks: tuple[Network, ...]
    """See SourceOptions."""
    proxy_url: str = ""
    """With user and password; "": the proxy of the environment, or none."""


class ContentSource(Protocol):
    """The content behind the URL of a Model."""

    def download(self, start: int, tag: str) -> contextlib.AbstractAsyncContextManager[Download]:
        """The content from byte `start` on; from 0 where it is not the content of `tag`, or the
        server cannot begin elsewhere. Raises: SourceError
        """


class SourceThreads:
    """Runs the blocking work of the sources on threads, one call at a time for each URL.

    A call on storage that is gone blocks and cannot be ended. Such a call keeps its thread, but
    gives back its slot after `slot_s`. The next call for the same URL waits for the blocked
    call. The process can end while such a call blocks.

    Args: slots: how many calls run at a time, not counting calls that gave back their slot
    """

    def __init__(self, slots: int, timeouts: SourceTimeouts) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._timeouts = timeouts
        self._url_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by URL
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)  # threads that wait for a call

    async def run(self, url: str, work: Callable[[], T]) -> T:
        """Run `work` on a thread. `work` goes on if the caller is cancelled. Returns: its result"""
        lock = self._url_locks.setdefault(url, asyncio.Lock())
        await lock.acquire()
        future: Future[T] = Future()
        future.add_done_callback(partial(_release_url_lock, lock, asyncio.get_running_loop()))
        outcome = asyncio.wrap_future(future)
        try:
            async with self._slots:
                self._submit(future, work)
                await asyncio.wait({outcome}, timeout=self._timeouts.slot_s)
            return await outcome
        finally:
            outcome.cancel()  # `work` that has not begun never begins, and the lock is released

    def _submit(self, future: Future[Any], work: Callable[[], Any]) -> None:
        # No Executor: the process would wait at its end for the threads of an Executor. A download
        # has thousands of calls, and to start a thread for each would block the event loop.
        self._queue.put((future, work))
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._work, name="source", daemon=True).start()

    def _work(self) -> None:
        """Run calls on a thread of its own until none has come for a while."""
        while True:
            try:
                call = self._queue.get(timeout=IDLE_THREAD_S)
            except queue.Empty:
                if self._idle.acquire(blocking=False):
                    return
            else:
                _run_work(*call)
                del call  # with its result
                self._idle.release()

    async def in_turns(self, url: str, work: Generator[None, None, T]) -> T:
        """Run the generator `work` in turns of TURN_S. Returns: what `work` returns.

        After each yield other sources may get the thread, and a cancelled caller ends the work.
        """
        while True:
            result = await self.run(url, partial(_run_turn, work))
            if result is not None:
                return result[0]

    async def count(self, url: str, chunks: AsyncIterator[bytes], counter: SampleCounter) -> int:
        """Count the samples of all `chunks`. Raises: TimeoutError; the errors of `chunks`"""
        while True:
            async with asyncio.timeout(self._timeouts.silence_s):
                chunk = await anext(chunks, b"")
            if not chunk:
                return counter.samples
            await self.run(url, partial(counter.feed, chunk))


def _run_work(future: Future[T], work: Callable[[], T]) -> None:
    """Runs on a thread of its own."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - the caller gets the error
        future.set_exception(error)


def _release_url_lock(lock: asyncio.Lock, loop: asyncio.AbstractEventLoop, _: Future[T]) -> None:
    """Thread-safe."""
    with contextlib.suppress(RuntimeError):  # the event loop has ended
        loop.call_soon_threadsafe(lock.release)


def _run_turn(work: Generator[None, None, T]) -> tuple[T] | None:
    """One turn of the work. Returns: None, or after the last turn the result in a tuple."""
    end_s = time.monotonic() + TURN_S
    while time.monotonic() < end_s:
        try:
            next(work)
        except StopIteration as end:
            return (end.value,)
    return None


def scheme_of(url: str) -> str:
    """Raises: SourceError"""
    try:
        return urlsplit(url).scheme
    except ValueError as error:  # whose text may quote a password
        raise SourceError("InvalidURL", f"spec.url: is no URL ({type(error).__name__})") from error


def dataset_format(declared: str, url: str) -> str:
    """The declared format, or else the format that the file name implies; "": unknown.

    Returns: one of FORMATS, or ""
    Raises: SourceError
    """
    name = declared.lower()
    if not name:
        parts = urlsplit(url)
        path = parts.path if parts.scheme else url  # a file name may have a "#" or "?"
        return ENDINGS.get(posixpath.splitext(path)[1].lower(), "")
    if name not in FORMATS:
        raise SourceError(
            "UnknownFormat",
            f"spec.format: {declared[:64]!r} cannot be counted; use one of {', '.join(FORMATS)}",
        )
    return name


def file_sample_counter(format_: str, url: str) -> SampleCounter:
    """A new counter for the content of one file. Raises: SourceError"""
    if not format_:
        raise SourceError(
            "UnknownFormat",
            f"spec.format: is empty, and the name of {redacted_source_url(url)} does not tell it; "
            f"use one of {', '.join(FORMATS)}",
        )
    if format_ == DIRECTORY:
        raise SourceError(
            "NotADirectory", f"spec.format: is dir, and {redacted_source_url(url)} is a file"
        )
    return sample_counter(format_)


def redacted_source_url(url: str) -> str:
    """The URL of a source for a message: without user, password, and the signature in the query."""
    parts = urlsplit(url)
    if not parts.scheme:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
