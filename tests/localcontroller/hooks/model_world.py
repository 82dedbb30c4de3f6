"""The Model hook on a real ledger and a real store, and a server that can do everything wrong."""

import asyncio
import contextlib
import hashlib
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

from common import wire
from edgeai.ids import TaskKey, Uid, WorkerName
from localcontroller.content import ContentPart, ContentStore, ContentVersion
from localcontroller.hooks.addresses import Network
from localcontroller.hooks.content_sources import ContentSources
from localcontroller.hooks.model import DISK_CALLS, ModelHook
from localcontroller.hooks.sources import (
    DEFAULT_TIMEOUTS,
    SourceOptions,
    SourceThreads,
    SourceTimeouts,
)
from localcontroller.ledger.ledger import Ledger
from localcontroller.metrics import Metrics
from localcontroller.workers.proxy import Proxy
from tests.localcontroller.builders import NoRelay, report_of
from tests.localcontroller.hooks.world import LOOPBACK
from tests.support.tasks import beside
from tests.support.waiting import async_eventually

UID = Uid("uid-m")


def key(name: str = "small", namespace: str = "default") -> TaskKey:
    return TaskKey(f"models.edgeai.io/{namespace}/{name}")


def assign(
    *,
    name: str = "small",
    namespace: str = "default",
    uid: str = UID,
    version: int = 1,
    **spec: Any,
) -> wire.Assign:
    workers = {WorkerName(f"{name}-edge0"): wire.THE_NODE_ITSELF}
    body = wire.AssignmentBody(namespace, name, spec, workers)
    return wire.Assign(1, key(name, namespace), Uid(uid), version, wire.pack(body))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def content(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


class FileServer:
    """Answers with `data`; cuts, lies and stalls as told. Keeps the ranges it was asked for."""

    def __init__(self, data: bytes, etag: str = '"v1"') -> None:
        self.data, self.etag = data, etag
        self.cut_after: int | None = None  # bytes of the next bodies, which then end
        self.knows_ranges = self.knows_conditions = True
        self.ranges: list[str] = []
        self.ranges_of: dict[str, list[str]] = {}  # by path
        self.store_dir: Path | None = None  # of the node, which gets all bytes before a cut

    async def __call__(self, request: web.Request) -> web.StreamResponse:
        range_ = request.headers.get("Range", "")
        if request.method == "HEAD":
            return web.Response(headers={"Content-Length": str(len(self.data))})
        self.ranges.append(range_)
        self.ranges_of.setdefault(request.path, []).append(range_)
        headers = {"Last-Modified": "Sat, 03 Jan 2026 10:00:00 GMT"}
        headers |= {"ETag": self.etag} if self.etag else {}
        start, status = 0, 200
        match = re.fullmatch(r"bytes=(\d+)-", range_)
        is_same = (
            not self.knows_conditions or request.headers.get("If-Range", self.etag) == self.etag
        )
        if request.headers.get("If-Match", self.etag) != self.etag:
            return web.Response(status=412)
        if match and self.knows_ranges and is_same:
            start, status = int(match[1]), 206
            if start >= len(self.data):
                return web.Response(status=416)
            whole = len(self.data)
            headers["Content-Range"] = f"bytes {start}-{whole - 1}/{whole}"
        response = web.StreamResponse(status=status, headers=headers)
        response.content_length = len(self.data) - start
        await response.prepare(request)
        end = len(self.data) if self.cut_after is None else start + self.cut_after
        await response.write(self.data[start:end])
        if end < len(self.data):
            await self._until_received(end)
            assert request.transport is not None
            request.transport.close()
        return response

    async def _until_received(self, end: int) -> None:
        """An HTTP client may drop what it has not read when the connection ends."""
        for _ in range(1000):
            if self.store_dir is None or part_bytes(self.store_dir) >= end:
                return
            await asyncio.sleep(0.02)


def whole_part(store: ContentStore, model: TaskKey, data: bytes, what: str = "x") -> ContentPart:
    """A part with all bytes of the content `what`."""
    part = store.open_part(model, what)
    part.begin('"v1"', len(data))
    part.write(data)
    return part


def part_bytes(directory: Path) -> int:
    return sum(size for file, size in sizes(directory).items() if file.suffix == ".part")


def sizes(directory: Path) -> dict[Path, int]:
    """The files of a store."""
    return {file: file.stat().st_size for file in directory.rglob("*")}


class ModelNode:
    def __init__(self, ledger: Ledger, store: ContentStore) -> None:
        self.ledger, self.store = ledger, store
        self.tries = asyncio.Event()  # set: a failed fetch is tried again
        self.tries_at_once = False
        self.pauses_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        if self.tries_at_once:
            await asyncio.sleep(0.01)
            return
        await self.tries.wait()
        self.tries.clear()

    async def hold(self, **fields: Any) -> None:
        assert await self.ledger.apply([assign(**fields)]) == [""]

    async def report(self, name: str = "small") -> wire.ReportBody | None:
        for outgoing in await self.ledger.reports():
            if outgoing.worker == f"{name}-edge0":
                return report_of(outgoing.body)
        return None

    async def until_ready(self, version: int = 1, name: str = "small") -> ContentVersion:
        async def check() -> bool:
            report = await self.report(name)
            assert report is not None
            assert report.phase == "ready", f"{report}"
            assert report.details["generation"] == str(version), f"{report}"
            return True

        await async_eventually(f"version {version} of {name}", check, timeout_s=60)
        return self.store.versions(key(name))[0]

    async def until_problem(self, reason: str, name: str = "small") -> str:
        """Returns: the message"""

        async def check() -> bool:
            report = await self.report(name)
            assert report is not None
            assert report.details.get("problem") == reason, f"{report}"
            return True

        await async_eventually(reason, check, timeout_s=60)
        report = await self.report(name)
        assert report is not None
        return report.reason

    def data(self, version: ContentVersion) -> bytes:
        return self.store.read(version.digest, 0, 2**30)


@contextlib.asynccontextmanager
async def fetching(
    ledger: Ledger,
    directory: Path,
    *,
    max_bytes: int = 2**30,
    bytes_per_s: float = 0.0,
    credentials_dir: Path | None = None,
    networks: tuple[Network, ...] = LOOPBACK,
    timeouts: SourceTimeouts = DEFAULT_TIMEOUTS,
) -> AsyncIterator[ModelNode]:
    store = ContentStore(directory, max_bytes=max_bytes, sync_bytes=64 * 1024)
    node = ModelNode(ledger, store)
    options = SourceOptions(networks=networks, credentials_dir=credentials_dir)
    threads = SourceThreads(DISK_CALLS, timeouts)
    proxy = Proxy(ledger, NoRelay(), Metrics())
    hook = ModelHook(
        ledger,
        store,
        ContentSources(options, proxy, threads, timeouts),
        threads,
        bytes_per_s=bytes_per_s,
        timeouts=timeouts,
        sleep=node.sleep,
    )
    async with beside(hook.run(), "models"):
        yield node
