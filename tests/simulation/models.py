"""The servers of Models, and how a node of the simulation reaches them."""

import asyncio
import contextlib
import hashlib
import random
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final, TypeVar

from localcontroller.hooks.content_sources import ContentRequest, ContentSources
from localcontroller.hooks.sources import (
    DEFAULT_TIMEOUTS,
    ContentSource,
    Download,
    RangeRefused,
    SourceError,
    SourceThreads,
)
from tests.simulation.content_disk import ContentDisk
from tests.simulation.world import Process, VirtualTime, fail, succeed

T = TypeVar("T")

HOT: Final = ("hot0", "hot1")
"""The Models that workers load hot."""
CHUNK_BYTES: Final = 16 * 1024
SYNC_BYTES: Final = 32 * 1024
MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_CONTENT_BYTES: Final = 128 * 1024


class ModelServer:
    """Has content for each URL, always the same. While `is_faulty` it does what servers do."""

    def __init__(self, world: VirtualTime) -> None:
        self.world = world
        self.is_faulty = True
        self.is_cut: dict[str, bool] = {}  # node -> whether it reaches no server
        self._contents: dict[str, bytes] = {}

    def content(self, url: str) -> bytes:
        if url not in self._contents:
            own = random.Random(zlib.crc32(url.encode()))
            self._contents[url] = own.randbytes(own.randint(1, _MAX_CONTENT_BYTES))
        return self._contents[url]

    def digest(self, url: str) -> str:
        return hashlib.sha256(self.content(url)).hexdigest()

    def has_fault(self, probability: float) -> bool:
        return self.is_faulty and self.world.chance(probability)


class SimulatedSources(ContentSources):
    def __init__(self, server: ModelServer, node: str) -> None:
        self._server, self._node = server, node

    @contextlib.asynccontextmanager
    async def opened(self, request: ContentRequest) -> AsyncIterator[ContentSource]:
        yield _Source(self._server, self._node, request.url)


class _Source:
    def __init__(self, server: ModelServer, node: str, url: str) -> None:
        self._server, self._node, self._url = server, node, url

    @contextlib.asynccontextmanager
    async def download(self, start: int, tag: str) -> AsyncIterator[Download]:
        server = self._server
        await self._wait(fault=0.1)
        data, own_tag = server.content(self._url), '"right"'
        # Only a digest tells wrong content from right one.
        if "sealed" in self._url and server.has_fault(0.1):
            data, own_tag = data[::-1], '"wrong"'
        if (tag and tag != own_tag) or server.has_fault(0.1):
            start = 0
        if start and start >= len(data):
            raise RangeRefused("Unavailable", "shorter than before")
        size = None if server.has_fault(0.05) else len(data)
        yield Download(start, size, own_tag, self._chunks(data, start))

    async def _chunks(self, data: bytes, start: int) -> AsyncGenerator[bytes, None]:
        for at in range(start, len(data), CHUNK_BYTES):
            await self._wait(fault=0.05)
            if self._server.has_fault(0.02):
                return
            yield data[at : at + CHUNK_BYTES]

    async def _wait(self, *, fault: float) -> None:
        await asyncio.sleep(self._server.world.delay_s(0.05))
        if self._server.is_cut.get(self._node) or self._server.has_fault(fault):
            raise SourceError("Unavailable", "the line is cut")


class SimulatedThreads(SourceThreads):
    """Args: on_frozen: called after work in the middle of which the process ends"""

    def __init__(self, process: Process, disk: ContentDisk, on_frozen: Callable[[], None]) -> None:
        super().__init__(1, DEFAULT_TIMEOUTS)
        self._process, self._disk, self._on_frozen = process, disk, on_frozen

    async def run(self, url: str, work: Callable[[], T]) -> T:
        lock = self._url_locks.setdefault(url, asyncio.Lock())
        await lock.acquire()
        outcome: asyncio.Future[Any] = self._process.create_future()
        goes_on = self._process.world.chance(0.5)  # work that has begun, when nobody waits any more

        def do() -> None:
            try:
                if goes_on or not outcome.done():
                    self._do(outcome, work)
            finally:
                lock.release()

        self._process.in_thread(do)
        return await outcome  # type: ignore[no-any-return]

    def _do(self, outcome: asyncio.Future[Any], work: Callable[[], Any]) -> None:
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - the caller gets it
            fail(outcome, error)
        else:
            succeed(outcome, result)
        if self._disk.is_frozen:
            self._on_frozen()
