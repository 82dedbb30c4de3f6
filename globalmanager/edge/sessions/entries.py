"""What waits in the inbox: the newest report of a worker, and who gets its acknowledgement."""

from typing import NamedTuple, Protocol

from common import wire
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName
from globalmanager.contract import WorkerReport


class Sender(Protocol):
    """The session that a report came from. SessionDriver implements this interface.

    The interface is a protocol, so the inbox does not depend on sockets.
    """

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


class WorkerKey(NamedTuple):
    """Identifies a worker of a task on one node. A newer report with the same key replaces an older
    report. A worker that moves may run on two nodes for a while.
    """

    uid: Uid
    worker: WorkerName
    node: NodeName


class Receipt(NamedTuple):
    """An acknowledgement that the inbox must still send to a session."""

    sender: Sender
    seq: int


class Entry(NamedTuple):
    """The newest report of a worker, and the receipts of this report and of the older reports that
    it replaced.
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


def is_stale_after(older: WorkerReport, newer: WorkerReport) -> bool:
    """Whether `newer` would change nothing after `older`. `worker_status.is_stale` has the same
    rule for the status."""
    if older.ledger_id != newer.ledger_id:
        return False
    if older.attempt == newer.attempt:
        is_repeated = 0 < newer.revision <= older.revision
        return is_repeated or older.body.status in wire.TERMINAL
    return older.attempt > newer.attempt
