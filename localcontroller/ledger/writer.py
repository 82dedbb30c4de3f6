"""Commits the operations of the ledger on the thread that owns the connection, many at once.

All operations that wait when a commit ends go into the next commit, so a slow disk makes batches
larger instead of queues longer. A caller's future resolves after the commit of its operation; only
then is the operation durable. The ledger gives the thread as an executor with one worker.
"""

import asyncio
import contextvars
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final, Protocol, TypeVar

import msgspec

from common.logs import get_logger
from edgeai.errors import EdgeAIError, Overloaded, Unavailable
from localcontroller.ledger.file import LedgerFile, LedgerOperation, is_damage, is_full
from localcontroller.ledger.tables import LedgerFull, LedgerTables, LedgerView

log = get_logger(__name__)

T = TypeVar("T")

MAX_WAITING: Final = 1024  # operations
MAX_BATCH: Final = 256
RETRY_AFTER_S: Final = 1.0  # delay in the Overloaded that a caller gets while the queue is full


class DefectiveOperation(EdgeAIError):
    """The operation fails at every try. The cause is a bug in this program, not the disk."""


class PendingLedgerOperation(msgspec.Struct, eq=False):
    """One ledger operation that waits for its commit."""

    operation: LedgerOperation
    outcome: asyncio.Future[Any]
    is_read: bool = False
    """The operation writes nothing, so it needs no disk space."""
    is_urgent: bool = False
    """The operation records a final state and may use the disk reserve."""


class LedgerCommit(msgspec.Struct, frozen=True):
    """The result of one commit: the new view, the number of changed rows, the duration."""

    view: LedgerView
    changes: int
    duration_s: float


class LedgerObserver(Protocol):
    """Gets its calls on the event loop."""

    def note_commit(self, commit: LedgerCommit) -> None:
        """The futures of the commit resolve next."""

    def note_refusal(self, error: EdgeAIError) -> None:
        """An operation had no effect."""


class LedgerWriter:
    """Args: executor: runs one call after the other; nothing else uses `file` from now on"""

    def __init__(
        self,
        file: LedgerFile,
        view: LedgerView,
        observer: LedgerObserver,
        executor: Executor,
    ) -> None:
        self._file = file
        self._view = view  # as of the last commit; used in the executor only
        self._observer = observer
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()  # of the next two
        self._queue: deque[PendingLedgerOperation] = deque()
        self._is_working = False  # the executor has a call of `_work` that will look at `_queue`
        self._context = contextvars.copy_context()  # log lines of the thread name the node, too
        self._closing: asyncio.Future[None] | None = None

    async def submit(
        self,
        operation: Callable[[LedgerTables], T],
        *,
        is_read: bool = False,
        is_urgent: bool = False,
    ) -> T:
        """Run `operation` and return its result after the commit.

        Raises: the EdgeAIError of the operation; Unavailable: the operation had no effect
        """
        if self._closing is not None:
            raise Unavailable("the ledger is closed")
        outcome: asyncio.Future[T] = self._loop.create_future()
        pending = PendingLedgerOperation(operation, outcome, is_read, is_urgent)
        with self._lock:
            if len(self._queue) >= MAX_WAITING:
                raise Overloaded("the ledger", RETRY_AFTER_S)
            self._queue.append(pending)
            was_working, self._is_working = self._is_working, True
        if not was_working:
            self._executor.submit(self._context.run, self._work)
        return await outcome

    async def close(self) -> None:
        """Commit all waiting operations, then close the file."""
        if self._closing is None:
            # The executor has the commit of the waiting operations already.
            self._closing = self._loop.run_in_executor(self._executor, self._file.close)
        await asyncio.shield(self._closing)
        self._executor.shutdown(wait=False)

    # ---- in the executor ------------------------------------------------------------------------

    def _work(self) -> None:
        while batch := self._next_batch():
            try:
                self._commit_allowed(batch)
            except Exception as error:  # one unexpected error must not end the work
                log.exception("ledger failed")
                self._fail(batch, Unavailable(f"the ledger failed: {error}"))

    def _next_batch(self) -> list[PendingLedgerOperation]:
        """The operations that wait, at most MAX_BATCH. When there is none, the work is over."""
        with self._lock:
            count = min(len(self._queue), MAX_BATCH)
            self._is_working = count > 0
            return [self._queue.popleft() for _ in range(count)]

    def _commit_allowed(self, batch: list[PendingLedgerOperation]) -> None:
        """Refuse ordinary writes while the disk reserve is released: they would fill its space."""
        if all(pending.is_read for pending in batch) or self._file.reserve.fill():
            self._commit(batch)
            return
        error = LedgerFull("the disk of the node's ledger is full")
        self._fail(
            [pending for pending in batch if not (pending.is_read or pending.is_urgent)], error
        )
        self._commit([pending for pending in batch if pending.is_read or pending.is_urgent])

    def _commit(self, batch: list[PendingLedgerOperation]) -> None:
        if not batch:
            return
        start_s, before = time.monotonic(), self._file.changes
        try:
            results = self._file.transact([pending.operation for pending in batch])
            self._view = self._file.view(self._view)
        except Exception as error:  # noqa: BLE001 - _on_failure sorts all errors
            self._on_failure(batch, error)
            return
        changes = self._file.changes - before
        commit = LedgerCommit(self._view, changes, time.monotonic() - start_s)
        self._loop.call_soon_threadsafe(self._deliver, commit, batch, results)

    def _on_failure(self, batch: list[PendingLedgerOperation], error: Exception) -> None:
        """No operation of `batch` took effect. Retry operations that can succeed; fail the rest."""
        if is_damage(error):
            self._replace_damaged(batch, str(error))
        elif len(batch) > 1:
            for pending in batch:
                self._commit([pending])
        elif not isinstance(error, sqlite3.Error | Unavailable):
            log.error("ledger operation is defective", exc_info=error)
            self._fail(batch, DefectiveOperation(f"the ledger cannot do that: {error!r}"))
        elif not is_full(error):
            log.error("ledger operation failed", reason=str(error))
            self._fail(batch, Unavailable(f"the node's ledger failed: {error}"))
        elif batch[0].is_urgent and self._file.reserve.release():
            log.warning("disk full, gave up the reserve for a final state")
            self._commit(batch)
        else:
            self._fail(batch, LedgerFull("the disk of the node's ledger is full"))

    def _replace_damaged(self, batch: list[PendingLedgerOperation], reason: str) -> None:
        try:
            self._file.replace_damaged(reason)
        except EdgeAIError as error:
            log.error("ledger lost", reason=str(error))
            self._fail(batch, Unavailable(str(error)))
            return
        self._view = self._file.view()
        commit = LedgerCommit(self._view, 0, 0.0)
        results = [Unavailable("the node's ledger was damaged and replaced") for _ in batch]
        self._loop.call_soon_threadsafe(self._deliver, commit, batch, results)

    def _fail(self, batch: list[PendingLedgerOperation], error: EdgeAIError) -> None:
        self._loop.call_soon_threadsafe(self._resolve, batch, [error for _ in batch])

    # ---- on the event loop ----------------------------------------------------------------------

    def _deliver(
        self, commit: LedgerCommit, batch: list[PendingLedgerOperation], results: list[Any]
    ) -> None:
        self._observer.note_commit(commit)
        self._resolve(batch, results)

    def _resolve(self, batch: list[PendingLedgerOperation], results: list[Any]) -> None:
        for pending, result in zip(batch, results, strict=True):
            if isinstance(result, EdgeAIError):
                self._observer.note_refusal(result)
            if pending.outcome.done():
                continue  # the caller was cancelled
            if isinstance(result, EdgeAIError):
                pending.outcome.set_exception(result)
            else:
                pending.outcome.set_result(result)
