"""The Dataset hook: counts the samples of each Dataset on this node, and reports the number.

The hook checks a Dataset when the GlobalManager assigns it, and then once in each period. A check
reads only changed content, and only a changed result makes a new report. The LocalController sends
this report as a worker with the Dataset's name. No secret gives the right to report as this worker.
If a source fails, the report names the problem. Neither a failed nor a slow source stops the checks
of the other Datasets.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from common.logs import get_logger
from common.tasks import TaskGroup
from edgeai.ids import WorkerName, parse_task_key
from localcontroller.hooks.files import NODE_ROOT, PathSource
from localcontroller.hooks.follower import TaskFollower, node_message, read_spec, source_problem
from localcontroller.hooks.keys import KeyFiles
from localcontroller.hooks.samples import Utf16Content
from localcontroller.hooks.sources import (
    DEFAULT_TIMEOUTS,
    HTTP_CLIENT,
    S3_CLIENT,
    CountRequest,
    DatasetSource,
    SourceError,
    SourceOptions,
    SourceSpec,
    SourceThreads,
    SourceTimeouts,
    dataset_format,
    load,
    scheme_of,
)
from localcontroller.ledger.attempts import ProcessMessage
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.tables import TaskRow

log = get_logger(__name__)

PLURAL: Final = "datasets"
PHASE: Final = "counting"
SAMPLES: Final = "numberOfSamples"
MAX_CHECKS: Final = 4  # at a time, not counting slow checks that gave back their slot
JITTER: Final = 0.1  # share of the period; spreads the checks of a node's Datasets over time

Pause = Callable[[float], Coroutine[Any, Any, None]]


class SourceFactory(msgspec.Struct, frozen=True):
    """Creates the source that the URL of a Dataset names."""

    options: SourceOptions
    threads: SourceThreads
    timeouts: SourceTimeouts

    async def create(self, namespace: str, spec: SourceSpec) -> DatasetSource:
        """Raises: SourceError"""
        url, options, scheme = spec.url, self.options, scheme_of(spec.url)
        format_ = dataset_format(spec.format, url)
        request = CountRequest(url, format_, self.threads, self.timeouts)
        match scheme:
            case "":
                if not url.startswith("/") or ".." in url.split("/") or "\0" in url:
                    text = f"spec.url: {url[:256]!r} is no absolute path"
                    raise SourceError("InvalidURL", text)
                root = options.data_root or NODE_ROOT
                return PathSource(request, root, options.node_path_prefixes)
            case "http" | "https":
                await load(HTTP_CLIENT)
                from localcontroller.hooks.web import WebSource

                return WebSource(request, options.networks)
            case "s3":
                await load(S3_CLIENT)
                from localcontroller.hooks.bucket import BucketSource

                keys = KeyFiles(options.credentials_dir, namespace, spec.credential_name)
                return BucketSource(request, keys)
        raise SourceError("InvalidURL", f"spec.url: scheme {scheme[:64]!r} is not supported")


class DatasetHook(TaskFollower):
    """Watches all Datasets of this node.

    Args: pause: sleeps for the given seconds: between two checks, or for timeouts.slot_s
    """

    def __init__(
        self,
        ledger: Ledger,
        options: SourceOptions,
        *,
        timeouts: SourceTimeouts = DEFAULT_TIMEOUTS,
        pause: Pause = asyncio.sleep,
    ) -> None:
        super().__init__(ledger, PLURAL, timeouts.ledger_retry_s)
        self._options = options
        self._timeouts = timeouts
        self._pause = pause
        self._factory = SourceFactory(options, SourceThreads(MAX_CHECKS, timeouts), timeouts)
        self._slots = asyncio.Semaphore(MAX_CHECKS)
        self._slow_slots = asyncio.Semaphore(MAX_CHECKS)  # for Datasets whose last check was slow

    async def watch(self, task: TaskRow) -> None:
        dataset = HeldDataset(task, self._factory)
        while True:
            await self._check(dataset)
            await self.record(dataset.uid, dataset.worker, dataset.message)
            spread = 1 + JITTER * (2 * random.random() - 1)
            await self._pause(self._options.poll_s * spread)

    async def _check(self, dataset: "HeldDataset") -> None:
        """Check one Dataset. A check that takes longer than slot_s goes on without a slot.

        A Dataset whose last check was slow waits for a slow slot, with other slow Datasets.
        """
        slots = self._slow_slots if dataset.is_slow else self._slots
        async with TaskGroup() as group, slots:
            check = group.create_task(dataset.check(), name=f"check {dataset.key}")
            pause = self._pause(self._timeouts.slot_s)
            slot_end = group.create_task(pause, name=f"slot of {dataset.key}")
            await asyncio.wait({check, slot_end}, return_when=asyncio.FIRST_COMPLETED)
            slot_end.cancel()
            dataset.is_slow = not check.done()


class HeldDataset:
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
            if self._source is None:
                namespace = parse_task_key(self.key).namespace
                self._source = await self._factory.create(namespace, read_spec(self._task))
            samples = await self._source.count_if_changed()
            self._samples = self._samples if samples is None else samples
            self._problem = None
        except Utf16Content as error:
            self._problem = SourceError("Unreadable", f"spec.url: {error}")
        except Exception as error:  # noqa: BLE001 - one Dataset must not end the checks of others
            self._problem = source_problem(error, self.key)
        self._log()

    def message(self) -> ProcessMessage:
        """The last check's result as a message. The ledger ignores a change of updateTime alone."""
        numbers = {SAMPLES: self._samples} if self._problem is None else {}
        return node_message(self._task, self._problem, phase=PHASE, numbers=numbers, details={})

    def _log(self) -> None:
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
