"""The one thread that owns the ledger's connection: many operations, one commit.

What waits when a commit ends goes into the next, so a slow disk makes batches larger instead of
queues longer. A caller's future resolves after the commit that its operation was part of; until
then nothing is promised. Started and closed by the ledger.
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
from localcontroller.ledger.file import LedgerFile, Operation, is_damage, is_full
from localcontroller.ledger.tables import NoSpace, Tables, View

log = get_logger(__name__)

T = TypeVar("T")

MAX_WAITING: Final = 1024  # operations
MAX_BATCH: Final = 256
RETRY_AFTER_S: Final = 1.0  # told to whoever comes while the queue is full


class Defect(EdgeAIError):
    """An operation that will fail however often it is tried: a bug, not a bad disk."""


class Job(msgspec.Struct, eq=False):
    """One operation on its way to a commit."""

    operation: Operation
    done: asyncio.Future[Any]
    is_read: bool = False
    """Changes nothing, so it needs no space."""
    is_urgent: bool = False
    """Worth the reserve: a final state."""


class Commit(msgspec.Struct, frozen=True):
    """What is told of each commit: the view it left behind, and how many rows it changed."""

    view: View
    changes: int
    duration_s: float


class Writer:
    """Args: on_commit is called on the event loop, before the futures of that commit resolve."""

    def __init__(self, file: LedgerFile, view: View, on_commit: Callable[[Commit], None]) -> None:
        self._file = file
        self._view = view  # of the last commit; the thread's own
        self._on_commit = on_commit
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.Queue[Job | None] = queue.Queue(MAX_WAITING)
        context = contextvars.copy_context()  # so that its log lines say whose they are
        self._thread = threading.Thread(
            target=context.run, args=(self._run,), name="ledger", daemon=True
        )
        self._is_closed = False
        self._thread.start()

    async def submit(
        self, operation: Callable[[Tables], T], *, is_read: bool = False, is_urgent: bool = False
    ) -> T:
        """Run `operation` and return its result once that is durable.

        Raises: what the operation raises of EdgeAIError; Unavailable: nothing of it took effect
        """
        if self._is_closed:
            raise Unavailable("the ledger is closed")
        done: asyncio.Future[T] = self._loop.create_future()
        try:
            self._waiting.put_nowait(Job(operation, done, is_read, is_urgent))
        except queue.Full:
            raise Overloaded("the ledger", RETRY_AFTER_S) from None
        return await done

    async def close(self) -> None:
        """Commit what waits, then close the file."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.to_thread(self._waiting.put, None)
        await asyncio.to_thread(self._thread.join)

    # ---- on the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        while jobs := self._next_batch():
            try:
                self._commit_allowed(jobs)
            except Exception as error:  # the thread must outlive any fault
                log.exception("ledger failed")
                self._fail(jobs, Unavailable(f"the ledger failed: {error}"))
        self._file.close()

    def _next_batch(self) -> list[Job]:
        """What waits, at least one; empty when the writer is to end."""
        batch: list[Job] = []
        job = self._waiting.get()
        while job is not None:
            batch.append(job)
            if len(batch) == MAX_BATCH:
                return batch
            try:
                job = self._waiting.get_nowait()
            except queue.Empty:
                return batch
        if batch:
            self._waiting.put(None)  # seen too early: first this batch, then the end
        return batch

    def _commit_allowed(self, jobs: list[Job]) -> None:
        """Ordinary writes stop while the reserve is given up, or they would eat it."""
        if all(job.is_read for job in jobs) or self._file.has_reserve():
            self._commit(jobs)
            return
        error = NoSpace("the disk of the node's ledger is full")
        self._fail([job for job in jobs if not (job.is_read or job.is_urgent)], error)
        self._commit([job for job in jobs if job.is_read or job.is_urgent])

    def _commit(self, jobs: list[Job]) -> None:
        if not jobs:
            return
        started, before = time.monotonic(), self._file.changes
        try:
            results = self._file.transact([job.operation for job in jobs])
            self._view = self._file.view(self._view)
        except Exception as error:  # noqa: BLE001 - every kind of failure is sorted below
            self._on_failure(jobs, error)
            return
        changes = self._file.changes - before
        commit = Commit(self._view, changes, time.monotonic() - started)
        self._call_loop(self._deliver, commit, jobs, results)

    def _on_failure(self, jobs: list[Job], error: Exception) -> None:
        """Nothing of `jobs` took effect: find out which of them may, and tell the others."""
        if is_damage(error):
            self._replace(jobs, str(error))
        elif len(jobs) > 1:
            for job in jobs:
                self._commit([job])
        elif not isinstance(error, sqlite3.Error | Unavailable):
            log.error("ledger operation is defective", exc_info=error)
            self._fail(jobs, Defect(f"the ledger cannot do that: {error!r}"))
        elif not is_full(error):
            log.error("ledger operation failed", reason=str(error))
            self._fail(jobs, Unavailable(f"the node's ledger failed: {error}"))
        elif jobs[0].is_urgent and self._file.release_reserve():
            log.warning("disk full, gave up the reserve for a final state")
            self._commit(jobs)
        else:
            self._fail(jobs, NoSpace("the disk of the node's ledger is full"))

    def _replace(self, jobs: list[Job], reason: str) -> None:
        try:
            self._file.replace(reason)
        except EdgeAIError as error:
            log.error("ledger lost", reason=str(error))
            self._fail(jobs, Unavailable(str(error)))
            return
        self._view = self._file.view()
        commit = Commit(self._view, 0, 0.0)
        results = [Unavailable("the node's ledger was damaged and replaced") for _ in jobs]
        self._call_loop(self._deliver, commit, jobs, results)

    def _fail(self, jobs: list[Job], error: EdgeAIError) -> None:
        self._call_loop(self._resolve, jobs, [error for _ in jobs])

    def _call_loop(self, callback: Callable[..., None], *args: Any) -> None:
        self._loop.call_soon_threadsafe(callback, *args)

    # ---- on the event loop ----------------------------------------------------------------------

    def _deliver(self, commit: Commit, jobs: list[Job], results: list[Any]) -> None:
        self._on_commit(commit)
        self._resolve(jobs, results)

    def _resolve(self, jobs: list[Job], results: list[Any]) -> None:
        for job, result in zip(jobs, results, strict=True):
            if job.done.done():
                continue  # whoever asked was cancelled
            if isinstance(result, EdgeAIError):
                job.done.set_exception(result)
            else:
                job.done.set_result(result)
