"""What this node holds and owes, durably: tasks, their workers' states, unacknowledged reports.

Used by link, worker API, watchers and REST from the event loop. A call returns after the commit
(or raises Unavailable, and nothing happened); reading `view` costs nothing. No path leads
from here to the network.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from common import times, wire
from common.edge_session import Outgoing, ReportAcked
from common.ids import Uid, WorkerName
from common.wire import WorkerStatus
from localcontroller.ledger import attempts
from localcontroller.ledger.attempts import Message, Worker
from localcontroller.ledger.file import LedgerFile
from localcontroller.ledger.tables import Grant, Tables, TaskRow, View, WorkerRow
from localcontroller.ledger.writer import Commit, Writer

CloudFrame = wire.Assign | wire.Withdraw | wire.Synced | ReportAcked

DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024
DEFAULT_RESERVE_BYTES: Final = 1024 * 1024
MAX_REASON_CHARS: Final = 1024


class Recorded(msgspec.Struct, frozen=True):
    """What became of a message: the worker as it is now, and whether its process is the newest."""

    worker: Worker
    is_current: bool


class Ledger:
    """Use `open`; a ledger belongs to the event loop on which it was opened."""

    def __init__(self, file: LedgerFile, view: View, *, now: times.Clock) -> None:
        self.view = view  # as of the newest commit
        self.on_commit: Callable[[Commit], None] | None = None  # for metrics
        self._file = file
        self._now = now
        self._changed = asyncio.Event()  # a new one for each change
        self._writer = Writer(file, view, self._on_commit)

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        reserve_bytes: int = DEFAULT_RESERVE_BYTES,
        now: times.Clock = times.utc_now,
    ) -> "Ledger":
        """Raises: StateError, NoSpace"""

        def open_file() -> tuple[LedgerFile, View]:
            file = LedgerFile(directory, max_bytes=max_bytes, reserve_bytes=reserve_bytes)
            return file, file.view()

        file, view = await asyncio.to_thread(open_file)
        return cls(file, view, now=now)

    async def close(self) -> None:
        """Commit what waits and let the directory go; idempotent."""
        await self._writer.close()

    @property
    def was_updated(self) -> bool:
        """Whether steps of the schema were taken, for which a library was loaded."""
        return self._file.was_updated

    @property
    def used_bytes(self) -> int:
        """Bytes on disk: the ledger and its log."""
        return self._file.used_bytes

    async def change_since(self, seen: View) -> View:
        """The view, as soon as it is another than `seen`."""
        while self.view is seen:
            await self._changed.wait()
        return self.view

    # ---- the cloud's side -----------------------------------------------------------------------

    async def apply(self, frames: Sequence[CloudFrame]) -> list[str]:
        """Take what the GlobalManager says, in order, in one commit.

        Returns: for each frame why it was refused for good, or ""
        """
        return await self._writer.submit(partial(_apply, frames))

    async def see_epoch(self, epoch: int) -> None:
        """Never again accept a GlobalManager of an older epoch."""
        if epoch > self.view.epoch:
            await self._writer.submit(lambda tables: tables.see_epoch(epoch))

    async def reports(self, *, after: int = 0) -> list[Outgoing]:
        """What the cloud has not acknowledged, of revisions beyond `after`, oldest first."""
        return await self._writer.submit(lambda tables: tables.reports(after=after), is_read=True)

    # ---- the workers' side ----------------------------------------------------------------------

    def grant(self, secret_hash: str) -> Grant | None:
        """What the secret with this sha256 (lower-case hex) gives the right to."""
        return self.view.grants.get(secret_hash)

    async def record(
        self, uid: Uid, name: WorkerName, messages: Sequence[Message]
    ) -> list[Recorded]:
        """What processes of one worker say. Raises: NotGranted, NoSpace, Unavailable"""
        is_final = any(message.status in wire.TERMINAL for message in messages)
        return await self._writer.submit(
            partial(_record, uid, name, messages, self._observed_at()), is_urgent=is_final
        )

    async def observe(
        self,
        uid: Uid,
        name: WorkerName,
        status: WorkerStatus,
        reason: str,
    ) -> Worker:
        """What was seen of a worker from outside: silent, dead, or back.

        Returns: the worker as it is now
        Raises: NotGranted, NoSpace, Unavailable
        """
        return await self._writer.submit(
            partial(_observe, uid, name, status, reason[:MAX_REASON_CHARS], self._observed_at()),
            is_urgent=status in wire.TERMINAL,
        )

    # ---- reading --------------------------------------------------------------------------------

    async def tasks(self, plural: str) -> list[TaskRow]:
        """The tasks of kinds with this plural, as they were assigned."""
        return await self._writer.submit(lambda tables: tables.tasks(plural), is_read=True)

    async def workers(self) -> list[WorkerRow]:
        return await self._writer.submit(lambda tables: list(tables.workers()), is_read=True)

    async def unacked(self) -> int:
        """Reports that the cloud has not acknowledged."""
        return await self._writer.submit(Tables.unacked, is_read=True)

    # ---------------------------------------------------------------------------------------------

    def _observed_at(self) -> str:
        return times.rfc3339(self._now())

    def _on_commit(self, commit: Commit) -> None:
        if self.on_commit is not None:
            self.on_commit(commit)
        if commit.view is not self.view:
            self.view = commit.view
            self._changed.set()
            self._changed = asyncio.Event()


def _apply(frames: Sequence[CloudFrame], tables: Tables) -> list[str]:
    refusals = []
    for frame in frames:
        if isinstance(frame, ReportAcked):
            tables.acknowledge(frame.report)
            refusals.append("")
        else:
            refusals.append(tables.apply(frame))
    return refusals


def _record(
    uid: Uid, name: WorkerName, messages: Sequence[Message], observed_at: str, tables: Tables
) -> list[Recorded]:
    old = new = tables.worker(uid, name)
    for message in messages:
        new = attempts.heard(new, message)
    if new is not old:
        tables.put_worker(uid, name, old, new, observed_at=observed_at)
    return [Recorded(new, message.instance == new.instance) for message in messages]


def _observe(
    uid: Uid,
    name: WorkerName,
    status: WorkerStatus,
    reason: str,
    observed_at: str,
    tables: Tables,
) -> Worker:
    old = tables.worker(uid, name)
    new = attempts.observed(old, status, reason)
    if new is not old:
        tables.put_worker(uid, name, old, new, observed_at=observed_at)
    return new
