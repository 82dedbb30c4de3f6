"""Counts the samples of each Dataset that the node holds, and reports the number or the problem.

Started by `app`. A Dataset is looked at when it comes, and then once in a period; only a content
that differs from the last one is read, and only what differs from the last report is one.
The report is that of a worker with the Dataset's name, which the LocalController itself is: no
secret gives the right to it. No fault of a source ends anything, and none keeps other Datasets
waiting for long.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import msgspec

from common import times, wire
from common.errors import EdgeAIError, ProtocolError, Unavailable
from common.ids import TaskKey, WorkerName, parse_task_key
from common.logs import get_logger
from common.tasks import TaskGroup
from localcontroller.hooks.files import NODE_ROOT, PathSource
from localcontroller.hooks.keys import KeyDirectory
from localcontroller.hooks.samples import NotUtf8
from localcontroller.hooks.sources import Source, SourceError, Threads, format_of
from localcontroller.hooks.web import WebSource, new_session
from localcontroller.ledger.attempts import UPDATE_TIME, WorkerMessage
from localcontroller.ledger.ledger import MAX_REASON_CHARS, Ledger
from localcontroller.ledger.tables import NotGranted, TaskRow

log = get_logger(__name__)

PLURAL: Final = "datasets"
PHASE: Final = "counting"
SAMPLES: Final = "numberOfSamples"
MAX_LOOKS: Final = 4  # at a time
PLACE_S: Final = 10.0  # after which a look is none of those any more and goes on beside them
JITTER: Final = 0.1  # of the period, so that a node's Datasets do not move in step
RETRY_S: Final = 5.0  # after the ledger could take, or give, nothing

Pause = Callable[[float], Awaitable[None]]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node's data is, and how often it is looked at."""

    poll_s: float = 60.0
    data_root: Path | None = None
    """Where the node's root is for this process; None: it is this process's own."""
    credentials_dir: Path | None = None


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """What a Dataset's assignment says."""

    url: str
    format: str = ""
    credential_name: str = ""


class Sources:
    """Makes the source that a Dataset names."""

    def __init__(self, options: Options, session: aiohttp.ClientSession, threads: Threads) -> None:
        self._root = options.data_root or NODE_ROOT
        self._keys = KeyDirectory(options.credentials_dir)
        self._session = session
        self._threads = threads

    def of(self, namespace: str, spec: Spec) -> Source:
        """Raises: SourceError"""
        try:
            scheme = urlsplit(spec.url).scheme
        except ValueError as error:
            raise SourceError("InvalidURL", f"spec.url: is no URL ({error})") from error
        format_ = format_of(spec.format, spec.url)
        match scheme:
            case "":
                _check_path(spec.url)
                return PathSource(self._root, spec.url, format_, self._threads)
            case "http" | "https":
                return WebSource(spec.url, format_, self._session, self._threads)
            case "s3":
                # Only now, for its client takes 4 MiB.
                from localcontroller.hooks.bucket import BucketSource

                return BucketSource(
                    spec.url,
                    format_,
                    self._threads,
                    keys=self._keys,
                    namespace=namespace,
                    credential=spec.credential_name,
                )
        raise SourceError("InvalidURL", f"spec.url: scheme {scheme[:64]!r} is not supported")


def _check_path(url: str) -> None:
    """Raises: SourceError"""
    if not url.startswith("/") or ".." in url.split("/") or "\0" in url:
        raise SourceError("InvalidURL", f"spec.url: {url[:256]!r} is no absolute path")


class Datasets:
    """Args: pause: how to wait for so many seconds"""

    def __init__(self, ledger: Ledger, options: Options, *, pause: Pause = asyncio.sleep) -> None:
        self._ledger = ledger
        self._options = options
        self._pause = pause
        self._watches: dict[TaskKey, tuple[wire.Held, asyncio.Task[None]]] = {}
        self._looks = asyncio.Semaphore(MAX_LOOKS)
        self._slow_looks = asyncio.Semaphore(MAX_LOOKS)

    async def run(self) -> None:
        """Until cancelled."""
        threads = Threads(MAX_LOOKS, place_s=PLACE_S)
        async with new_session() as session, TaskGroup() as group:
            await self._follow(group, Sources(self._options, session, threads))

    async def _follow(self, group: TaskGroup, sources: Sources) -> None:
        """Watch exactly the Datasets that the node holds, as they are now."""
        while True:
            view = self._ledger.view
            try:
                tasks = await self._ledger.tasks(PLURAL)
            except Unavailable as error:
                log.warning("cannot read tasks yet", reason=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            self._watch_only(group, sources, tasks)
            held = view.held
            while view.held is held:
                view = await self._ledger.change_since(view)

    def _watch_only(self, group: TaskGroup, sources: Sources, tasks: list[TaskRow]) -> None:
        wanted = {task.key: task for task in tasks}
        for key, (held, watch) in list(self._watches.items()):
            if key not in wanted or wanted[key].held != held:
                watch.cancel()
                del self._watches[key]
        for key in wanted.keys() - self._watches.keys():
            task = wanted[key]
            watch = group.create_task(self._watch(task, sources), name=f"dataset {key}")
            self._watches[key] = (task.held, watch)

    async def _watch(self, task: TaskRow, sources: Sources) -> None:
        """Look, report, wait, again."""
        dataset = Dataset(task, sources)
        while True:
            await self._look(dataset)
            await self._report(dataset)
            spread = 1 + JITTER * (2 * random.random() - 1)
            await self._pause(self._options.poll_s * spread)

    async def _look(self, dataset: "Dataset") -> None:
        """Few begin at a time; one that takes long keeps no other from beginning.

        Those of which that is known begin apart, so that only their like waits for them.
        """
        places = self._slow_looks if dataset.is_slow else self._looks
        async with TaskGroup() as group, places:
            look = group.create_task(dataset.look(), name=f"look at {dataset.key}")
            await asyncio.wait({look}, timeout=PLACE_S)
            dataset.is_slow = not look.done()

    async def _report(self, dataset: "Dataset") -> None:
        """Returns once the report is durable, or can never be.

        Told after each look: the ledger writes nothing of what it knows, and it alone knows
        whether the task has left the node meanwhile and come back.
        """
        while True:
            try:
                await self._ledger.record(dataset.uid, dataset.worker, [dataset.message()])
                return
            except NotGranted:
                return  # withdrawn, or the GlobalManager is older than this process
            except EdgeAIError as error:
                log.warning("cannot note samples yet", task=dataset.key, reason=str(error))
                await asyncio.sleep(RETRY_S)


class Dataset:
    """One Dataset as the node holds it: its source, and what is known of it."""

    def __init__(self, task: TaskRow, sources: Sources) -> None:
        self.key = task.key
        self.uid = task.uid
        self.worker = WorkerName(parse_task_key(task.key).name)
        self.is_slow = False  # its last look took longer than its place was kept
        self._task = task
        self._sources = sources
        self._source: Source | None = None
        self._samples = 0
        self._problem: SourceError | None = None
        self._logged: int | str | None = None

    async def look(self) -> None:
        """See how many samples there are, or why that cannot be told."""
        try:
            source = self._source = self._source or self._new_source()
            samples = await source.look()
            self._samples = self._samples if samples is None else samples
            self._problem = None
        except SourceError as error:
            self._problem = error
        except NotUtf8 as error:
            self._problem = SourceError("Unreadable", f"spec.url: {error}")
        except Exception as error:  # one Dataset's fault must not end the others
            log.exception("dataset cannot be looked at", task=self.key)
            self._problem = SourceError("InternalError", type(error).__name__)
        self._log()

    def _new_source(self) -> Source:
        try:
            body: wire.AssignmentBody = wire.unpack(self._task.body, wire.AssignmentBody)
            spec = msgspec.convert(body.spec, Spec)
        except (ProtocolError, msgspec.ValidationError) as error:
            raise SourceError("InvalidSpec", f"spec: {error}") from error
        return self._sources.of(body.namespace, spec)

    def message(self) -> WorkerMessage:
        """What the last look says. Its updateTime alone is no news to the ledger."""
        now = times.rfc3339(times.utc_now())
        details = {"generation": str(self._task.held.version), UPDATE_TIME: now}
        if self._problem is None:
            return WorkerMessage(phase=PHASE, numbers={SAMPLES: self._samples}, details=details)
        return WorkerMessage(
            phase=PHASE,
            status="lost",
            reason=self._problem.message[:MAX_REASON_CHARS],
            details={**details, "problem": self._problem.reason},
        )

    def _log(self) -> None:
        """One line for each change."""
        outcome = self._samples if self._problem is None else self._problem.message
        if outcome == self._logged:
            return
        self._logged = outcome
        if self._problem is None:
            log.info("dataset counted", task=self.key, samples=outcome)
        else:
            log.warning("dataset cannot be counted", task=self.key, reason=outcome)
