"""The thread that owns the ledger's connection. It commits many operations at once.

All operations that wait when a commit ends go into the next commit, so a slow disk makes batches
larger instead of queues longer. A caller's future resolves after the commit of its operation; only
then is the operation durable. The ledger starts and closes this thread.
"""

import asyncio
import contextvars
import queue
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from common.errors import EdgeAIError, Overloaded, Unavailable
from common.logs import get_logger
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
    done: asyncio.Future[Any]
    is_read: bool = False
    """The operation writes nothing, so it needs no disk space."""
    is_urgent: bool = False
    """The operation records a final state and may use the disk reserve."""


class LedgerCommit(msgspec.Struct, frozen=True):
    """The result of one commit: the new view, the number of changed rows, the duration."""

    view: LedgerView
    changes: int
    duration_s: float


class LedgerWriter:
    """Args: on_commit: called on the event loop before the futures of the commit resolve"""

    def __init__(
        self, file: LedgerFile, view: LedgerView, on_commit: Callable[[LedgerCommit], None]
    ) -> None:
        self._file = file
        self._view = view  # as of the last commit; used on the thread only
        self._on_commit = on_commit
        self._loop = asyncio.get_running_loop()
        # The item None ends the thread.
        self._waiting: queue.Queue[PendingLedgerOperation | None] = queue.Queue(MAX_WAITING)
        context = contextvars.copy_context()  # log lines of the thread name the node, too
        self._thread = threading.Thread(
            target=context.run, args=(self._run,), name="ledger", daemon=True
        )
        self._is_closed = False
        self._thread.start()

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
        if self._is_closed:
            raise Unavailable("the ledger is closed")
        done: asyncio.Future[T] = self._loop.create_future()
        try:
            self._waiting.put_nowait(PendingLedgerOperation(operation, done, is_read, is_urgent))
        except queue.Full:
            raise Overloaded("the ledger", RETRY_AFTER_S) from None
        return await done

    async def close(self) -> None:
        """Commit all waiting operations, then close the file."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.to_thread(self._waiting.put, None)
        await asyncio.to_thread(self._thread.join)

    # ---- on the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while batch := self._next_batch():
            try:
                self._commit_allowed(batch)
            except Exception as error:  # one unexpected error must not end the thread
                log.exception("ledger failed")
                self._fail(batch, Unavailable(f"the ledger failed: {error}"))
        self._file.close()

    def _next_batch(self) -> list[PendingLedgerOperation]:
        """All waiting operations, at least one; empty when the thread must end."""
        batch: list[PendingLedgerOperation] = []
        pending = self._waiting.get()
        while pending is not None:
            batch.append(pending)
            if len(batch) == MAX_BATCH:
                return batch
            try:
                pending = self._waiting.get_nowait()
            except queue.Empty:
                return batch
        if batch:
            self._waiting.put(None)  # commit this batch first, then end
        return batch

    def _commit_allowed(self, batch: list[PendingLedgerOperation]) -> None:
        """Refuse ordinary writes while the disk reserve is released: they would fill its space."""
        if all(pending.is_read for pending in batch) or self._file.ensure_reserve():
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
        started, before = time.monotonic(), self._file.changes
        try:
            results = self._file.transact([pending.operation for pending in batch])
            self._view = self._file.view(self._view)
        except Exception as error:  # noqa: BLE001 - _on_failure sorts all errors
            self._on_failure(batch, error)
            return
        changes = self._file.changes - before
        commit = LedgerCommit(self._view, changes, time.monotonic() - started)
        self._call_loop(self._deliver, commit, batch, results)

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
        elif batch[0].is_urgent and self._file.release_reserve():
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
        self._call_loop(self._deliver, commit, batch, results)

    def _fail(self, batch: list[PendingLedgerOperation], error: EdgeAIError) -> None:
        self._call_loop(self._resolve, batch, [error for _ in batch])

    def _call_loop(self, callback: Callable[..., None], *args: Any) -> None:
        self._loop.call_soon_threadsafe(callback, *args)

    # ---- on the event loop ----------------------------------------------------------------------

    def _deliver(
        self, commit: LedgerCommit, batch: list[PendingLedgerOperation], results: list[Any]
    ) -> None:
        self._on_commit(commit)
        self._resolve(batch, results)

    def _resolve(self, batch: list[PendingLedgerOperation], results: list[Any]) -> None:
        for pending, result in zip(batch, results, strict=True):
            if pending.done.done():
                continue  # the caller was cancelled
            if isinstance(result, EdgeAIError):
                pending.done.set_exception(result)
            else:
                pending.done.set_result(result)
