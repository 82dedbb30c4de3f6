"""The Dataset hook: counts the samples of each Dataset on this node, and reports the number.

`app` starts the hook. The hook checks a Dataset when the GlobalManager assigns it, and then once in
each period. A check reads only changed content, and only a changed result makes a new report. The
LocalController sends this report as a worker with the Dataset's name. No secret gives the right to
report as this worker. If a source fails, the report names the problem. Neither a failed nor a slow
source stops the checks of the other Datasets.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from common import wire
from common.logs import get_logger
from common.node_paths import DEFAULT_PREFIXES
from common.tasks import TaskGroup
from edgeai import times
from edgeai.errors import EdgeAIError, ProtocolError, Unavailable
from edgeai.ids import TaskKey, WorkerName, parse_task_key
from localcontroller.hooks.addresses import Network
from localcontroller.hooks.files import NODE_ROOT, PathSource
from localcontroller.hooks.keys import BucketKeyDirectory
from localcontroller.hooks.samples import Utf16Content
from localcontroller.hooks.sources import (
    DEFAULT_TIMEOUTS,
    DatasetSource,
    DatasetTimeouts,
    SourceError,
    SourceThreads,
    dataset_format,
)
from localcontroller.ledger.attempts import UPDATE_TIME, ProcessMessage
from localcontroller.ledger.ledger import MAX_REASON_CHARS, Ledger
from localcontroller.ledger.tables import NotGranted, TaskRow

log = get_logger(__name__)

PLURAL: Final = "datasets"
PHASE: Final = "counting"
SAMPLES: Final = "numberOfSamples"
MAX_CHECKS: Final = 4  # at a time, not counting slow checks that gave back their slot
JITTER: Final = 0.1  # share of the period; spreads the checks of a node's Datasets over time

Pause = Callable[[float], Coroutine[Any, Any, None]]


class DatasetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the data of the node is, and how often the hook checks a Dataset."""

    poll_s: float = 60.0
    """Period of the checks of one Dataset, seconds."""
    data_root: Path | None = None
    """The directory where this process sees the node's root; None: "/"."""
    networks: tuple[Network, ...] = ()
    """Networks that the URLs of Datasets may lead to beside the allowed ones. See `addresses`."""
    node_path_prefixes: tuple[str, ...] = DEFAULT_PREFIXES
    """Directories of the node below which Datasets may be. See common.node_paths."""
    credentials_dir: Path | None = None
    """See BucketKeyDirectory."""


class DatasetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The spec of a Dataset, from its assignment."""

    url: str
    format: str = ""
    credential_name: str = ""


class SourceFactory:
    """Creates the source that the URL of a Dataset names."""

    def __init__(
        self,
        options: DatasetOptions,
        threads: SourceThreads,
        timeouts: DatasetTimeouts,
    ) -> None:
        self._networks = options.networks
        self._root = options.data_root or NODE_ROOT
        self._prefixes = options.node_path_prefixes
        self._keys = BucketKeyDirectory(options.credentials_dir)
        self._threads = threads
        self._timeouts = timeouts

    def create(self, namespace: str, spec: DatasetSpec) -> DatasetSource:
        """Raises: SourceError"""
        try:
            scheme = urlsplit(spec.url).scheme
        except ValueError as error:
            raise SourceError("InvalidURL", f"spec.url: is no URL ({error})") from error
        format_ = dataset_format(spec.format, spec.url)
        match scheme:
            case "":
                _check_node_path(spec.url)
                return PathSource(
                    self._root, spec.url, format_, self._threads, self._timeouts, self._prefixes
                )
            case "http" | "https":
                # Imported on first use: the HTTP client takes 7 MiB, and that of S3 4 MiB.
                from localcontroller.hooks.web import WebSource

                return WebSource(spec.url, format_, self._threads, self._timeouts, self._networks)
            case "s3":
                from localcontroller.hooks.bucket import BucketSource

                return BucketSource(
                    spec.url,
                    format_,
                    self._threads,
                    self._timeouts,
                    keys=self._keys,
                    namespace=namespace,
                    credential=spec.credential_name,
                )
        raise SourceError("InvalidURL", f"spec.url: scheme {scheme[:64]!r} is not supported")


def _check_node_path(url: str) -> None:
    """Raises: SourceError"""
    if not url.startswith("/") or ".." in url.split("/") or "\0" in url:
        raise SourceError("InvalidURL", f"spec.url: {url[:256]!r} is no absolute path")


class DatasetHook:
    """Watches all Datasets of this node.

    Args: pause: sleeps for the given seconds: between two checks, or for timeouts.slot_s
    """

    def __init__(
        self,
        ledger: Ledger,
        options: DatasetOptions,
        *,
        timeouts: DatasetTimeouts = DEFAULT_TIMEOUTS,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self._ledger = ledger
        self._options = options
        self._timeouts = timeouts
        self._pause = pause
        self._watches: dict[TaskKey, tuple[wire.TaskVersion, asyncio.Task[None]]] = {}
        self._slots = asyncio.Semaphore(MAX_CHECKS)
        self._slow_slots = asyncio.Semaphore(MAX_CHECKS)  # for Datasets whose last check was slow

    async def run(self) -> None:
        """Run until cancelled."""
        threads = SourceThreads(MAX_CHECKS, self._timeouts)
        factory = SourceFactory(self._options, threads, self._timeouts)
        async with TaskGroup() as group:
            await self._follow_ledger(group, factory)

    async def _follow_ledger(self, group: TaskGroup, factory: SourceFactory) -> None:
        """After each change of the ledger, watch exactly the Datasets that the ledger holds."""
        while True:
            view = self._ledger.view
            try:
                tasks = await self._ledger.tasks(PLURAL)
            except Unavailable as error:
                log.warning("cannot read tasks, retrying", reason=str(error))
                await asyncio.sleep(self._timeouts.ledger_retry_s)
                continue
            self._watch_only(group, factory, tasks)
            versions = view.task_versions
            while view.task_versions is versions:
                view = await self._ledger.change_since(view)

    def _watch_only(self, group: TaskGroup, factory: SourceFactory, tasks: list[TaskRow]) -> None:
        tasks_by_key = {task.key: task for task in tasks}
        for key, (version, watch) in list(self._watches.items()):
            if key not in tasks_by_key or tasks_by_key[key].task_version != version:
                watch.cancel()
                del self._watches[key]
        for key in tasks_by_key.keys() - self._watches.keys():
            task = tasks_by_key[key]
            watch = group.create_task(self._watch(task, factory), name=f"dataset {key}")
            self._watches[key] = (task.task_version, watch)

    async def _watch(self, task: TaskRow, factory: SourceFactory) -> None:
        """Check the Dataset and report the result, once in each period."""
        dataset = HeldDataset(task, factory)
        while True:
            await self._check(dataset)
            await self._report(dataset)
            spread = 1 + JITTER * (2 * random.random() - 1)
            await self._pause(self._options.poll_s * spread)

    async def _check(self, dataset: "HeldDataset") -> None:
        """Check one Dataset. A check that takes longer than slot_s goes on without a slot.

        A Dataset whose last check was slow uses a slow slot, so that slow Datasets wait only for
        other slow Datasets.
        """
        slots = self._slow_slots if dataset.is_slow else self._slots
        async with TaskGroup() as group, slots:
            check = group.create_task(dataset.check(), name=f"check {dataset.key}")
            pause = self._pause(self._timeouts.slot_s)
            slot_end = group.create_task(pause, name=f"slot of {dataset.key}")
            await asyncio.wait({check, slot_end}, return_when=asyncio.FIRST_COMPLETED)
            slot_end.cancel()
            dataset.is_slow = not check.done()

    async def _report(self, dataset: "HeldDataset") -> None:
        """Try to record the result of the last check until the ledger takes or refuses the result.

        The result may be the same as before. The ledger writes only changed results, and only the
        ledger knows whether the task left the node and returned.
        """
        while True:
            try:
                await self._ledger.record(dataset.uid, dataset.worker, [dataset.message()])
                return
            except NotGranted:
                return  # the task was withdrawn, or an older GlobalManager grants no such worker
            except EdgeAIError as error:
                log.warning("cannot record samples, retrying", task=dataset.key, reason=str(error))
                await asyncio.sleep(self._timeouts.ledger_retry_s)


class HeldDataset:
    """One Dataset that this node holds: its source, and the result of its last check."""

    def __init__(self, task: TaskRow, factory: SourceFactory) -> None:
        self.key = task.key
        self.uid = task.uid
        self.worker = WorkerName(parse_task_key(task.key).name)
        self.is_slow = False  # the last check took longer than slot_s
        self._task = task
        self._factory = factory
        self._source: DatasetSource | None = None
        self._samples = 0
        self._problem: SourceError | None = None
        self._logged: int | str | None = None

    async def check(self) -> None:
        """Count the samples if the content has changed, or find out why they cannot be counted."""
        try:
            source = self._source = self._source or self._new_source()
            samples = await source.count_if_changed()
            self._samples = self._samples if samples is None else samples
            self._problem = None
        except SourceError as error:
            self._problem = error
        except Utf16Content as error:
            self._problem = SourceError("Unreadable", f"spec.url: {error}")
        except Exception as error:  # one failed Dataset must not end the checks of other Datasets
            log.exception("dataset check failed", task=self.key)
            self._problem = SourceError("InternalError", type(error).__name__)
        self._log()

    def _new_source(self) -> DatasetSource:
        try:
            body: wire.AssignmentBody = wire.unpack(self._task.body, wire.AssignmentBody)
            spec = msgspec.convert(body.spec, DatasetSpec)
        except (ProtocolError, msgspec.ValidationError) as error:
            raise SourceError("InvalidSpec", f"spec: {error}") from error
        return self._factory.create(body.namespace, spec)

    def message(self) -> ProcessMessage:
        """The last check's result as a message. The ledger ignores a change of updateTime alone."""
        now = times.rfc3339(times.utc_now())
        details = {"generation": str(self._task.task_version.version), UPDATE_TIME: now}
        if self._problem is None:
            return ProcessMessage(phase=PHASE, numbers={SAMPLES: self._samples}, details=details)
        return ProcessMessage(
            phase=PHASE,
            status="lost",
            reason=self._problem.message[:MAX_REASON_CHARS],
            details={**details, "problem": self._problem.reason},
        )

    def _log(self) -> None:
        """Log the result of a check if it differs from the last logged result."""
        outcome = self._samples if self._problem is None else self._problem.message
        if outcome == self._logged:
            return
        self._logged = outcome
        if self._problem is None:
            log.info("dataset counted", task=self.key, samples=outcome)
        else:
            log.warning(
                "dataset cannot be counted",
                task=self.key,
                reason=outcome,
                detail=self._problem.detail,
            )
