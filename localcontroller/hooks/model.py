"""The Model hook: brings the content of each Model of this node to the node's disk.

The GlobalManager assigns a Model to the nodes whose workers load it hot. The hook fetches the
content once for each version of the assignment, goes on where a cut or a crash has stopped it, and
verifies the digest before workers can see the content. Until then, and when the content cannot be
had, workers keep the version before. The hook reports progress, the end and problems as a worker
of its own. What is on the disk stays in use without the cloud.
"""

import asyncio
import contextlib
import math
import posixpath
import re
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from common import wire
from common.logs import get_logger
from common.ratelimit import TokenBucket
from edgeai.backoff import Backoff
from edgeai.errors import ProtocolError
from edgeai.ids import TaskKey, WorkerName, parse_task_key
from localcontroller.content import NO_SPACE, ContentPart, ContentStore, ContentVersion, NoSpace
from localcontroller.hooks.content_sources import ContentRequest, ContentSources
from localcontroller.hooks.follower import TaskFollower, node_message, read_spec, source_problem
from localcontroller.hooks.sources import (
    DEFAULT_TIMEOUTS,
    ContentSource,
    Download,
    RangeRefused,
    SourceError,
    SourceSpec,
    SourceThreads,
    SourceTimeouts,
    scheme_of,
)
from localcontroller.ledger.attempts import Number, ProcessMessage
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.tables import TaskRow

log = get_logger(__name__)

PLURAL: Final = "models"
DISK_CALLS: Final = 4  # at a time, not counting slow ones that gave back their slot
NAMESPACE_DOWNLOADS: Final = 2  # at a time
CHECK_S: Final = 600.0  # from one look at content that is here to the next
WRONG_CONTENT_S: Final = 6 * 3600.0  # to the next download of content that nothing tells from wrong
_BURSTS_PER_S: Final = 4  # of downloads at the limit of the rate
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_SHA256: Final = re.compile(r"([0-9a-f]{64})?")

T = TypeVar("T")
Sleep = Callable[[float], Coroutine[Any, Any, None]]


class ModelHook(TaskFollower):
    """
    Args:
        threads: for the disk
        bytes_per_s: limit of all downloads of this node together; 0: no limit
        sleep: waits for the given seconds before the next try
    """

    def __init__(
        self,
        ledger: Ledger,
        store: ContentStore,
        sources: ContentSources,
        threads: SourceThreads,
        *,
        bytes_per_s: float = 0.0,
        timeouts: SourceTimeouts = DEFAULT_TIMEOUTS,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        super().__init__(ledger, PLURAL, timeouts.ledger_retry_s)
        self._store = store
        self._sources, self._threads = sources, threads
        self._answer_s, self._progress_s = timeouts.answer_s, timeouts.progress_s
        self._sleep = sleep
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._locks: WeakValueDictionary[TaskKey, asyncio.Lock] = WeakValueDictionary()
        rate = bytes_per_s or sys.float_info.max
        burst = max(1, int(rate / _BURSTS_PER_S))
        self._rate = TokenBucket(qps=rate, burst=burst, max_wait_s=math.inf, part="downloads")

    async def changed(self, tasks: list[TaskRow]) -> None:
        uids = {task.key: task.uid for task in tasks}
        try:
            await self._threads.run("", partial(self._store.keep_only, uids))
        except OSError as error:
            log.warning("cannot delete the content of Models", reason=str(error))

    async def watch(self, task: TaskRow) -> None:
        """Bring the content of one version, however often that fails, and again when it is gone."""
        delivery = Delivery(task)
        backoff = Backoff(base_s=2.0, max_s=300.0, floor_s=0.5)
        while True:
            size = delivery.size
            try:
                await self._deliver(delivery)
                delivery.problem = None
            except NoSpace as error:
                delivery.problem = SourceError("NoSpace", str(error))
            except OSError as error:
                reason = "NoSpace" if error.errno in NO_SPACE else "DiskFailed"
                delivery.problem = SourceError(reason, f"disk of the node: {error.strerror}")
            except Exception as error:  # noqa: BLE001 - one failed Model must not end the others
                delivery.problem = source_problem(error, task.key)
            await self._report(delivery)
            if delivery.problem is None or delivery.size > size:
                backoff.reset()
            await self._sleep(self._pause_s(delivery, backoff))

    def _pause_s(self, delivery: "Delivery", backoff: Backoff) -> float:
        problem = delivery.problem
        if problem is None:
            return CHECK_S
        log.warning("no model, trying again", reason=problem.message, detail=problem.detail)
        if problem is delivery.wrong and not delivery.wrong_tag:
            return WRONG_CONTENT_S
        return backoff.next_s()

    async def _deliver(self, delivery: "Delivery") -> None:
        """Raises: SourceError, NoSpace, OSError"""
        version = self._store.version(delivery.key, delivery.task.uid, delivery.generation)
        if version is None:
            delivery.version = None
            delivery.read_spec()
            async with self._locks.setdefault(delivery.key, asyncio.Lock()):
                version = await self._stored(delivery) or await self._fetch(delivery)
            log.info("model is here", task=delivery.key, version=delivery.generation)
        delivery.version = version

    async def _stored(self, delivery: "Delivery") -> ContentVersion | None:
        """The version, when another Model of the namespace has its content."""
        digest, uid = delivery.spec.sha256, delivery.task.uid
        size = self._store.size(digest, delivery.namespace)
        if size is None:
            return None
        version = ContentVersion(delivery.generation, digest, size, delivery.file_name)
        await self._on_disk(delivery, partial(self._store.switch, delivery.key, uid, version))
        return version

    async def _fetch(self, delivery: "Delivery") -> ContentVersion:
        # A tenant with slow servers makes only its own Models wait.
        share = self._shares.setdefault(delivery.namespace, asyncio.Semaphore(NAMESPACE_DOWNLOADS))
        if share.locked():
            delivery.problem = None
            await self._report(delivery)
        async with share:
            opened = contextlib.ExitStack()
            try:
                part = await self._on_disk(delivery, partial(self._open_part, delivery, opened))
                return await self._fill(part, delivery)
            finally:
                # Also when this is cancelled meanwhile, and a part that a thread opens then.
                closing = asyncio.ensure_future(self._on_disk(delivery, opened.close))
                try:
                    await asyncio.shield(closing)
                except asyncio.CancelledError:
                    await closing
                    raise

    def _open_part(self, delivery: "Delivery", opened: contextlib.ExitStack) -> ContentPart:
        """Runs on a thread. Args: opened: gets the part"""
        part = self._store.open_part(delivery.key, delivery.content)
        opened.callback(part.close)
        return part

    async def _fill(self, part: ContentPart, delivery: "Delivery") -> ContentVersion:
        """Raises: SourceError, NoSpace, OSError"""
        expected = delivery.spec.sha256
        # A kill may have come between the last byte and the end.
        if part.size != part.whole_size and part.digest != expected:
            try:
                async with self._sources.opened(delivery.request) as source:
                    await self._download(part, source, delivery)
            except NoSpace:
                # Two parts that wait for each other's space would wait for ever.
                await self._on_disk(delivery, part.discard)
                raise
        if expected and part.digest != expected:
            await self._on_disk(delivery, part.discard)
            text = f"spec.sha256: the content has the digest {part.digest}"
            error = SourceError("WrongDigest", text)
            # An answer without a length may have been cut off.
            if delivery.is_whole_download and delivery.whole_size is not None:
                delivery.wrong, delivery.wrong_tag = error, part.tag
            raise error
        commit = partial(part.commit, delivery.task.uid, delivery.generation, delivery.file_name)
        return await self._on_disk(delivery, commit)

    async def _download(
        self, part: ContentPart, source: ContentSource, delivery: "Delivery"
    ) -> None:
        start = part.size if part.tag or delivery.spec.sha256 else 0
        silence = asyncio.create_task(self._note_silence(delivery), name="silence of a server")
        try:
            async with source.download(start, part.tag) as download:
                silence.cancel()
                await self._receive(part, download, delivery)
        except RangeRefused:
            await self._on_disk(delivery, partial(part.begin, "", None))
            if not start:
                raise
            async with source.download(0, "") as download:
                await self._receive(part, download, delivery)
        finally:
            silence.cancel()

    async def _note_silence(self, delivery: "Delivery") -> None:
        await asyncio.sleep(self._answer_s)
        delivery.is_asking = True
        await self._report(delivery)
        delivery.is_asking = False

    async def _receive(self, part: ContentPart, download: Download, delivery: "Delivery") -> None:
        delivery.check(download)
        delivery.is_whole_download = not download.start
        if not download.start:
            begin = partial(part.begin, download.tag, download.size)
            await self._on_disk(delivery, begin)
        elif (download.start, download.tag) != (part.size, part.tag):
            raise RangeRefused("Unavailable", "spec.url: the content has changed on the way")
        delivery.size, delivery.whole_size = part.size, download.size
        if download.size is not None:
            await self._on_disk(delivery, partial(part.make_room, download.size - part.size))
        clock = asyncio.get_running_loop().time
        reported_s = clock()
        async with contextlib.aclosing(download.chunks) as chunks:
            async for chunk in chunks:
                await self._rate.acquire(len(chunk))
                await self._on_disk(delivery, partial(part.write, chunk))
                delivery.size = part.size
                if clock() - reported_s > self._progress_s:
                    reported_s = clock()
                    await self._report(delivery)
        if download.size is not None and part.size != download.size:
            error = SourceError if part.size < download.size else RangeRefused
            raise error("Unavailable", "spec.url: the content has another length than announced")

    async def _on_disk(self, delivery: "Delivery", work: Callable[[], T]) -> T:
        """Not on asyncio's threads: these resolve names for the session, and hold up the end."""
        return await self._threads.run(delivery.key, work)

    async def _report(self, delivery: "Delivery") -> None:
        if delivery.worker:
            await self.record(delivery.task.uid, delivery.worker, delivery.message)


class Delivery:
    """One version of a Model's assignment, and how far its content has come."""

    def __init__(self, task: TaskRow) -> None:
        self.task = task
        self.key = task.key
        self.namespace = parse_task_key(task.key).namespace
        self.generation = task.task_version.version
        self.spec = SourceSpec(url="")
        self.worker = WorkerName("")
        self.size = 0  # bytes that have come
        self.whole_size: int | None = None
        self.is_asking = False  # the server does not answer
        self.is_whole_download = False  # the last download began at the first byte
        self.version: ContentVersion | None = None
        self.problem: SourceError | None = None
        self.wrong: SourceError | None = None  # the URL gave wrong content
        self.wrong_tag = ""
        try:
            body: wire.AssignmentBody = wire.unpack(task.body, wire.AssignmentBody)
            self.worker = next(iter(body.workers), self.worker)
        except ProtocolError as error:
            log.warning("cannot read an assignment", task=task.key, reason=str(error))

    def read_spec(self) -> None:
        """Raises: SourceError"""
        self.spec = read_spec(self.task)
        scheme_of(self.spec.url)
        if not _SHA256.fullmatch(self.spec.sha256):
            raise SourceError("InvalidSpec", "spec.sha256: is no SHA-256 in lower-case hex")

    def check(self, download: Download) -> None:
        """Raises: SourceError"""
        if self.wrong and self.wrong_tag and download.tag == self.wrong_tag:
            raise self.wrong  # without a byte of the same content
        # A server that dies looks like the end of content without a length.
        if download.size is None and not self.spec.sha256:
            text = "the server does not say how long the content is: set spec.sha256"
            raise SourceError("Unavailable", f"spec.url: {text}")

    @property
    def request(self) -> ContentRequest:
        spec = self.spec
        return ContentRequest(self.key, self.task.uid, self.worker, spec.url, spec.credential_name)

    @property
    def content(self) -> str:
        """Equal for all tries to fetch the same content."""
        text = f"{self.spec.sha256}|{self.spec.url}"
        # Without a digest, content behind one URL is new with each version of the spec.
        return text if self.spec.sha256 else f"{text}|{self.task.uid}|{self.generation}"

    @property
    def file_name(self) -> str:
        """The name of the file in the URL; "model" for a name that could mean a path."""
        name = posixpath.basename(urlsplit(self.spec.url).path)
        return name if _FILE_NAME.fullmatch(name) else "model"

    def message(self) -> ProcessMessage:
        version = self.version if self.problem is None else None
        phase, details = "asking" if self.is_asking else "fetching", {}
        if version:
            phase, details = "ready", {"digest": version.digest}
        numbers: dict[str, Number] = {"bytes": version.size if version else self.size}
        whole_size = version.size if version else self.whole_size
        if whole_size is not None:
            numbers["size"] = whole_size
        return node_message(self.task, self.problem, phase=phase, numbers=numbers, details=details)
