"""The durable state of this node: tasks, states of their workers, unacknowledged reports.

The link, the worker API, the watches and the REST API use the ledger from the event loop. A call
returns after the commit. A call that raises Unavailable had no effect. Reading `view` needs no disk
access. The ledger never uses the network.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from common import wire
from common.clock import SYSTEM_CLOCK, Clock
from common.wire import WorkerStatus
from edgeai import times
from edgeai.errors import EdgeAIError
from edgeai.ids import Uid, WorkerName
from localcontroller.ledger import attempts
from localcontroller.ledger.attempts import MaySpeak, ProcessMessage, WorkerRecord, may_always_speak
from localcontroller.ledger.file import LedgerFile, random_id
from localcontroller.ledger.outbox import Outgoing, ReportAcked
from localcontroller.ledger.tables import (
    Grant,
    LedgerFull,
    LedgerTables,
    LedgerView,
    TaskRow,
    WorkerRow,
)
from localcontroller.ledger.writer import LedgerCommit, LedgerWriter

CloudFrame = wire.Assign | wire.Withdraw | wire.Synced | ReportAcked

DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024
DEFAULT_RESERVE_BYTES: Final = 1024 * 1024
MAX_REASON_CHARS: Final = 1024
NO_POD: Final[Mapping[str, str]] = MappingProxyType({})


class RecordedMessage(msgspec.Struct, frozen=True):
    """The result of one recorded message."""

    worker: WorkerRecord
    """The record of the worker after the commit."""
    is_current: bool
    """Whether the newest process of the worker sent the message."""


class Ledger:
    """Create a ledger with `open`. It belongs to the event loop in which it was opened."""

    def __init__(
        self, file: LedgerFile, view: LedgerView, *, clock: Clock, executor: Executor
    ) -> None:
        self.view = view  # the state after the newest commit
        # set by `app`, for metrics
        self.on_commit: Callable[[LedgerCommit], None] | None = None
        self.on_refusal: Callable[[EdgeAIError], None] | None = None
        self.file = file
        self._is_short = False  # the last write found no space
        self._clock = clock
        self._change = asyncio.Event()  # set at the next change of `view`, then replaced
        self._writer = LedgerWriter(file, view, self, executor)

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        reserve_bytes: int = DEFAULT_RESERVE_BYTES,
        clock: Clock = SYSTEM_CLOCK,
        executor: Executor | None = None,
        new_id: Callable[[], str] = random_id,
    ) -> "Ledger":
        """Open the ledger in `directory`, or begin a new one.

        Args:
            executor: runs one call after the other; the ledger shuts it down. None: a new thread
            new_id: makes the id of a new ledger
        Raises: StateError, LedgerFull
        """
        executor = executor or ThreadPoolExecutor(1, thread_name_prefix="ledger")

        def open_file() -> tuple[LedgerFile, LedgerView]:
            file = LedgerFile(
                directory, max_bytes=max_bytes, reserve_bytes=reserve_bytes, new_id=new_id
            )
            return file, file.view()

        try:
            file, view = await asyncio.get_running_loop().run_in_executor(executor, open_file)
        except BaseException:
            executor.shutdown(wait=False)
            raise
        return cls(file, view, clock=clock, executor=executor)

    async def close(self) -> None:
        """Commit all waiting operations and unlock the directory. Idempotent."""
        await self._writer.close()

    async def change_since(self, view: LedgerView) -> LedgerView:
        """Wait until the ledger has another view than `view`. Returns: the new view"""
        while self.view is view:
            await self._change.wait()
        return self.view

    # ---- for the link ---------------------------------------------------------------------------

    async def apply(self, frames: Sequence[CloudFrame]) -> list[str]:
        """Apply frames of the GlobalManager, in order, in one commit.

        Returns: for each frame the reason for refusing the frame; "": the frame was applied
        """
        return await self._writer.submit(partial(_apply, frames))

    async def remember_epoch(self, epoch: int) -> None:
        """Remember the epoch of a GlobalManager. The link refuses a smaller epoch from then on."""
        if epoch > self.view.epoch:
            await self._writer.submit(lambda tables: tables.remember_epoch(epoch))

    async def reports(self, *, after: int = 0) -> list[Outgoing]:
        """The unacknowledged reports with revisions above `after`, oldest first."""
        return await self._writer.submit(lambda tables: tables.reports(after=after), is_read=True)

    async def check_space(self) -> None:
        """Check that the ledger takes a report. It writes only where the disk may be full.

        Raises: LedgerFull, Unavailable
        """
        is_short = self._is_short or self.file.is_disk_short
        await self._writer.submit(partial(_check_space, is_short), is_read=not is_short)

    # ---- for the worker API and the watches -----------------------------------------------------

    def grant(self, secret_hash: str) -> Grant | None:
        """The grant of a secret; None: there is none. Args: sha256 of the secret, lower-case hex"""
        return self.view.grants.get(secret_hash)

    async def record(
        self,
        uid: Uid,
        name: WorkerName,
        messages: Sequence[ProcessMessage],
        *,
        may_speak: MaySpeak = may_always_speak,
    ) -> list[RecordedMessage]:
        """Record messages of one worker. `change_since` wakes the link, which sends the report.

        Args: may_speak: called in the thread of the writer
        Raises: NotGranted, TooManyCounts, TooManyProcesses, LedgerFull, Unavailable
        """
        is_final = any(message.status in wire.TERMINAL for message in messages)
        return await self._writer.submit(
            partial(_record, uid, name, messages, may_speak, self._observed_at()),
            is_urgent=is_final,
        )

    async def observe(
        self,
        uid: Uid,
        name: WorkerName,
        status: WorkerStatus,
        reason: str,
        *,
        pod: Mapping[str, str] = NO_POD,
    ) -> WorkerRecord:
        """Record that a watch saw a worker silent, dead, or running again.

        Args: pod: what the report of a worker without a secret says about the worker's pod
        Returns: the record of the worker after the commit
        Raises: NotGranted, LedgerFull, Unavailable
        """
        return await self._writer.submit(
            partial(
                _observe, uid, name, status, reason[:MAX_REASON_CHARS], pod, self._observed_at()
            ),
            is_urgent=status in wire.TERMINAL,
        )

    # ---- reading --------------------------------------------------------------------------------

    async def tasks(self, plural: str) -> list[TaskRow]:
        """The tasks whose kind has this plural, for example "datasets"."""
        return await self._writer.submit(lambda tables: tables.tasks(plural), is_read=True)

    async def workers(self) -> list[WorkerRow]:
        """All workers of the tasks that this node holds, ordered by task and name."""
        return await self._writer.submit(lambda tables: list(tables.workers()), is_read=True)

    async def count_unacked(self) -> int:
        """How many reports the GlobalManager has not acknowledged."""
        return await self._writer.submit(LedgerTables.count_unacked, is_read=True)

    def _observed_at(self) -> str:
        return times.rfc3339(self._clock.utcnow())

    def note_refusal(self, error: EdgeAIError) -> None:
        self._is_short = self._is_short or isinstance(error, LedgerFull)
        if self.on_refusal is not None:
            self.on_refusal(error)

    def note_commit(self, commit: LedgerCommit) -> None:
        self._is_short = self._is_short and commit.changes == 0
        if self.on_commit is not None:
            self.on_commit(commit)
        if commit.view is not self.view:
            self.view = commit.view
            self._change.set()
            self._change = asyncio.Event()


def _check_space(is_short: bool, tables: LedgerTables) -> None:
    tables.check_space()
    if is_short:
        tables.rewrite()


def _apply(frames: Sequence[CloudFrame], tables: LedgerTables) -> list[str]:
    refusals = []
    for frame in frames:
        if isinstance(frame, ReportAcked):
            tables.record_ack(frame.report)
            refusals.append("")
        else:
            refusals.append(tables.apply(frame))
    return refusals


def _record(
    uid: Uid,
    name: WorkerName,
    messages: Sequence[ProcessMessage],
    may_speak: MaySpeak,
    observed_at: str,
    tables: LedgerTables,
) -> list[RecordedMessage]:
    old = new = tables.worker(uid, name)
    for message in messages:
        new = attempts.after_message(new, message, may_speak=may_speak)
    if new is not old:
        tables.put_worker_record(uid, name, old, new, observed_at=observed_at)
    return [RecordedMessage(new, message.instance == new.instance) for message in messages]


def _observe(
    uid: Uid,
    name: WorkerName,
    status: WorkerStatus,
    reason: str,
    pod: Mapping[str, str],
    observed_at: str,
    tables: LedgerTables,
) -> WorkerRecord:
    old = tables.worker(uid, name)
    if pod and not tables.has_secret(uid, name):
        new = attempts.after_pod(old, status, reason, pod)
    else:
        new = attempts.after_observation(old, status, reason)
    if new is not old:
        tables.put_worker_record(uid, name, old, new, observed_at=observed_at)
    return new
