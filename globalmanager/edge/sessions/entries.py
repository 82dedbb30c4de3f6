"""What waits in the inbox: reports of workers, their receipts, and the mailbox of a job."""

import asyncio
import enum
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple, Protocol

from common import wire
from common.clock import loop_time
from edgeai.backoff import Backoff
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName
from globalmanager.contract import WorkerReport


class Sender(Protocol):
    """The session that a report came from. The inbox does not depend on sockets."""

    @property
    def node(self) -> NodeName: ...

    @property
    def ledger_id(self) -> str:
        """Identity of the node's ledger. The identity changes when the node has lost its ledger."""

    @property
    def replaces(self) -> frozenset[str]:
        """Ledgers of the node that this replica had found in .status when the session began."""

    @property
    def is_live(self) -> bool: ...

    def acknowledge(self, seq: int, *, refusal: str = "") -> None:
        """Acknowledge a report. After the end of the session the call does nothing."""

    def resume(self) -> None:
        """Read reports again, because there is room. Called after `offer` returned False."""

    def close(self, code: int, reason: str) -> None:
        """End the session. The node sends again what was not acknowledged."""


class ReportKey(NamedTuple):
    """A worker on one node: one that moves may run on two. A newer report replaces an older."""

    uid: Uid
    worker: WorkerName
    node: NodeName


class Receipt(NamedTuple):
    """An acknowledgement that the inbox must still send to a session."""

    sender: Sender
    seq: int


class Entry(NamedTuple):
    """The newest report of a worker, and the receipts of it and of the reports that it replaced,
    but for those of sessions that have ended.
    """

    task: TaskKey
    report: WorkerReport
    size_bytes: int
    receipts: tuple[Receipt, ...]
    since: float
    """When the oldest of these reports arrived, monotonic seconds."""

    @property
    def is_terminal(self) -> bool:
        return self.report.body.status in wire.TERMINAL


class Lane(enum.IntEnum):
    ENDS = 0
    OTHERS = 1


class Mailbox:
    """The reports of one job, and when they may be written. Times are those of the event loop.

    Args: slice_: the slice with the entries of these workers; "": .status
    """

    def __init__(self, uid: Uid, task: TaskKey, slice_: str) -> None:
        self.uid = uid
        self.task = task
        self.slice = slice_
        self.waiting: dict[ReportKey, Entry] = {}
        self.active: dict[ReportKey, Entry] = {}
        """A writer works on these reports."""
        self.deferred: dict[ReportKey, Entry] = {}
        """Each of these reports could not be written, although others could."""
        self.backoff: Backoff | None = None
        self.retry_at_s = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.is_urgent = False
        """Whether the end of a worker waits."""
        self.lane: Lane | None = None
        """Where the mailbox queues for a writer; None: nowhere."""
        self._open_at_s = 0.0  # end of the pause after the last write
        self._open_for_ends_at_s = 0.0

    def entries(self) -> Iterator[Entry]:
        return chain(self.waiting.values(), self.active.values(), self.deferred.values())

    def put(self, key: ReportKey, entry: Entry) -> None:
        self.waiting[key] = entry
        self.is_urgent |= entry.is_terminal

    def due_s(self) -> float:
        open_at_s = self._open_for_ends_at_s if self.is_urgent else self._open_at_s
        return max(self.retry_at_s, open_at_s)

    def pause(self, seconds: float, *, end_s: float = 0.0) -> None:
        """Let the next write begin after this time, and with the end of a worker after `end_s`."""
        self._open_at_s = loop_time() + seconds
        self._open_for_ends_at_s = loop_time() + end_s

    def take(self, max_bytes: int) -> None:
        """Begin a write of the reports that wait, ends first."""
        self.lane = None
        size = 0
        for key, entry in sorted(self.waiting.items(), key=lambda item: not item[1].is_terminal):
            size += entry.size_bytes
            if self.active and size > max_bytes:
                break
            self.active[key] = self.waiting.pop(key)
        self.is_urgent = any(entry.is_terminal for entry in self.waiting.values())

    def release(self) -> dict[ReportKey, Entry]:
        """End the write. Returns: the reports that it was about"""
        active, self.active = self.active, {}
        return active


def is_stale_after(older: WorkerReport, newer: WorkerReport) -> bool:
    """Whether `newer` would change nothing after `older`. `worker_status.is_stale` has the same
    rule for the status; training kinds compare the age of the pods before (`ReplicaFold`).
    """
    if older.ledger_id != newer.ledger_id:
        return False
    if older.attempt == newer.attempt:
        is_repeated = 0 < newer.revision <= older.revision
        return is_repeated or older.body.status in wire.TERMINAL
    return older.attempt > newer.attempt
