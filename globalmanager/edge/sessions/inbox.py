"""The inbox: reports on their way from the sessions into the status of their objects.

Sessions `offer` reports. A fixed number of writers passes each to `fold_and_write`, and then
acknowledges it. Of each worker of a task only the newest report waits; its acknowledgement stands
for the older ones, too. A report of a worker that is not bound to the sending node changes nothing;
this is checked again when the report's turn comes. The inbox touches no socket and writes nothing
itself.

Three reports are refused for good: of a worker that is not bound to the sender, with a body that
does not decode, and for an object that is gone. A refusal concerns this report alone and does not
end the session: a worker wrote the body, and the node's other workers must not suffer for it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

import msgspec

from common import wire
from common.backoff import Backoff
from common.errors import ProtocolError
from common.ids import NodeName, TaskKey, Uid, WorkerName
from common.logs import get_logger
from common.session import WINDOW
from common.tasks import TaskGroup
from globalmanager.contract import WorkerReport
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.downstream import Binding

log = get_logger(__name__)

GONE: Final = "gone"  # reason of a refusal: the report's object does not exist any more


class Done(msgspec.Struct, frozen=True):
    """The report has taken effect, or changes nothing."""


class Refused(msgspec.Struct, frozen=True):
    """The report can never take effect."""

    reason: str


class Retry(msgspec.Struct, frozen=True):
    """The report could not be written now. The next attempt comes after `after_s` or later."""

    reason: str
    after_s: float = 0.0


Outcome = Done | Refused | Retry

FoldAndWrite = Callable[[TaskKey, Uid, WorkerReport], Awaitable[Outcome]]
"""Brings a report into the status of exactly the object with this uid. Done: it is durable."""


class Sender(Protocol):
    """The session that a report came from; SessionDriver is one.

    A protocol, so that the inbox knows nothing of sockets.
    """

    @property
    def node(self) -> NodeName: ...

    @property
    def ledger_id(self) -> str:
        """Of the node's ledger; another one after the ledger was lost."""

    @property
    def is_live(self) -> bool: ...

    def acknowledge(self, seq: int, *, refused: str = "") -> None:
        """Does nothing once the session is over."""

    def resume(self) -> None:
        """There is room again, after `offer` returned False."""


class InboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    reports_per_node: int = 2 * WINDOW
    """Unacknowledged reports of one node; a node that keeps to the window stays below."""
    total_bytes: int = 64 * 1024 * 1024
    """Encoded size of all that waits."""
    writers: int = 16
    """Writes under way at the same time."""
    write_timeout_s: float = 30.0
    """An attempt that takes longer has failed, and is tried again."""
    backoff_base_s: float = 0.5
    """Longest delay before the first further attempt, for each worker."""
    backoff_max_s: float = 30.0
    """Longest delay before any further attempt."""
    warn_every_s: float = 10.0
    """A node's foreign reports are logged no more often than this."""


class WorkerKey(NamedTuple):
    """Reports with the same key replace each other."""

    uid: Uid
    worker: WorkerName


class Receipt(NamedTuple):
    """An acknowledgement that is owed to a session."""

    sender: Sender
    seq: int


class Entry(NamedTuple):
    """The newest report of a worker, and the receipts of the older ones that it replaced, too."""

    task: TaskKey
    report: WorkerReport
    size_bytes: int
    receipts: tuple[Receipt, ...]


class Inbox:
    """Bounded in reports per node and in bytes. All calls come from the event loop's thread.

    Args:
        binding_of: (node, uid) -> the task on that node and its workers; None: not bound there
        clock: monotonic seconds
    """

    def __init__(
        self,
        *,
        binding_of: Callable[[NodeName, Uid], Binding | None],
        fold_and_write: FoldAndWrite,
        metrics: EdgeMetrics,
        limits: InboxLimits = InboxLimits(),  # noqa: B008 - frozen
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._binding_of = binding_of
        self._fold_and_write = fold_and_write
        self._metrics = metrics
        self._limits = limits
        self._clock = clock
        self._waiting: dict[WorkerKey, Entry] = {}
        self._active: dict[WorkerKey, Entry] = {}  # being written
        self._scheduled: set[WorkerKey] = set()  # in _ready, or waits for its backoff
        self._ready: asyncio.Queue[WorkerKey] = asyncio.Queue()  # bounded by _waiting
        self._backoffs: dict[WorkerKey, Backoff] = {}
        self._reports_of: Counter[NodeName] = Counter()
        self._reports = 0  # sum of _reports_of
        self._size_bytes = 0
        self._paused: dict[Sender, None] = {}  # wait for room, the first one first
        self._warned_at: dict[NodeName, float] = {}

    @property
    def depth(self) -> int:
        """Reports not yet acknowledged."""
        return self._reports

    async def run(self) -> None:
        """Until cancelled. Reports that wait then stay unacknowledged, so nodes send them again."""
        async with TaskGroup() as writers:
            for number in range(self._limits.writers):
                writers.create_task(self._write(), name=f"inbox writer {number}")

    def offer(self, sender: Sender, report: wire.Report) -> bool:
        """Take a report in, or refuse it.

        Returns: False when there is no room for another one: read nothing more from this sender
            until its `resume` is called
        """
        binding = self._bound(sender.node, WorkerKey(report.uid, report.worker))
        if binding is None:
            self._refuse_foreign(sender, report)
            return self._has_room(sender)
        try:
            body = wire.unpack(report.body, wire.ReportBody)
        except ProtocolError as error:
            self._metrics.reports.labels("malformed").inc()
            sender.acknowledge(report.seq, refused=str(error))
            return self._has_room(sender)
        taken = WorkerReport(
            node=sender.node,
            ledger_id=sender.ledger_id,
            worker=report.worker,
            attempt=report.attempt,
            body=body,
        )
        self._put(
            WorkerKey(report.uid, report.worker),
            Entry(binding.key, taken, len(report.body), (Receipt(sender, report.seq),)),
        )
        return self._has_room(sender)

    def drop(self, sender: Sender) -> None:
        """The session is over. Its reports still take effect, and nobody is told."""
        self._paused.pop(sender, None)

    def _bound(self, node: NodeName, key: WorkerKey) -> Binding | None:
        """None: the worker is not on that node, or not any more."""
        binding = self._binding_of(node, key.uid)
        return binding if binding is not None and key.worker in binding.workers else None

    # ---- what waits ----

    def _put(self, key: WorkerKey, entry: Entry) -> None:
        self._count(entry)
        before = self._waiting.get(key)
        self._waiting[key] = entry if before is None else self._merge(key, before, entry)
        if key not in self._active:
            self._schedule(key)

    def _merge(self, key: WorkerKey, older: Entry, newer: Entry) -> Entry:
        """One entry for both; receipts of sessions that have ended are dropped."""
        self._discount(older)
        self._discount(newer)
        # A report of the worker's former node must not replace one of its present node.
        is_bound = self._bound(older.report.node, key) is not None
        is_stale = is_bound and is_stale_after(older.report, newer.report)
        kept = older if is_stale else newer
        live = tuple(r for r in older.receipts + newer.receipts if r.sender.is_live)
        merged = kept._replace(receipts=live)
        self._count(merged)
        return merged

    def _count(self, entry: Entry, sign: int = 1) -> None:
        for receipt in entry.receipts:
            self._reports_of[receipt.sender.node] += sign
            if not self._reports_of[receipt.sender.node]:
                del self._reports_of[receipt.sender.node]
        self._reports += sign * len(entry.receipts)
        self._size_bytes += sign * entry.size_bytes
        self._metrics.inbox_reports.set(self.depth)
        self._metrics.inbox_bytes.set(self._size_bytes)

    def _discount(self, entry: Entry) -> None:
        self._count(entry, -1)

    def _schedule(self, key: WorkerKey) -> None:
        if key not in self._scheduled:
            self._scheduled.add(key)
            self._ready.put_nowait(key)

    # ---- backpressure ----

    def _has_room(self, sender: Sender) -> bool:
        if self._fits(sender):
            return True
        self._paused[sender] = None
        return False

    def _fits(self, sender: Sender) -> bool:
        return (
            self._size_bytes < self._limits.total_bytes
            and self._reports_of[sender.node] < self._limits.reports_per_node
        )

    def _resume_paused(self) -> None:
        for sender in [sender for sender in self._paused if self._fits(sender)]:
            del self._paused[sender]
            sender.resume()

    # ---- the writers ----

    async def _write(self) -> None:
        while True:
            key = await self._ready.get()
            self._scheduled.discard(key)
            entry = self._waiting.pop(key)
            self._active[key] = entry
            outcome = await self._attempt(key, entry)
            del self._active[key]
            self._finish(key, entry, outcome)

    async def _attempt(self, key: WorkerKey, entry: Entry) -> Outcome:
        if self._bound(entry.report.node, key) is None:
            return Refused(not_bound(key.worker, entry.report.node))
        try:
            async with asyncio.timeout(self._limits.write_timeout_s):
                return await self._fold_and_write(entry.task, key.uid, entry.report)
        except TimeoutError:
            return Retry(f"not written within {self._limits.write_timeout_s:g} s")
        except Exception as error:  # one object's fault must not stop the others
            log.exception("report cannot be folded", task=entry.task, worker=key.worker)
            return Retry(type(error).__name__)

    def _finish(self, key: WorkerKey, entry: Entry, outcome: Outcome) -> None:
        if isinstance(outcome, Retry):
            self._retry(key, entry, outcome)
        else:
            self._answer(key, entry, outcome)
        self._resume_paused()

    def _answer(self, key: WorkerKey, entry: Entry, outcome: Done | Refused) -> None:
        self._discount(entry)
        self._backoffs.pop(key, None)
        refused = outcome.reason if isinstance(outcome, Refused) else ""
        if refused:
            log.warning("report refused", task=entry.task, worker=key.worker, reason=refused)
        self._metrics.reports.labels("refused" if refused else "done").inc(len(entry.receipts))
        for receipt in entry.receipts:
            receipt.sender.acknowledge(receipt.seq, refused=refused)
        if key in self._waiting:
            self._schedule(key)

    def _retry(self, key: WorkerKey, entry: Entry, outcome: Retry) -> None:
        newer = self._waiting.get(key)
        # `entry` was counted while it was active, as waiting entries are.
        self._waiting[key] = entry if newer is None else self._merge(key, entry, newer)
        backoff = self._backoffs.get(key) or self._new_backoff()
        self._backoffs[key] = backoff
        # The first failure is ordinary (a conflict). An outage gets one line for each worker.
        if backoff.failures == 1:
            log.warning(
                "report not written, trying again",
                task=entry.task,
                worker=key.worker,
                reason=outcome.reason,
            )
        self._scheduled.add(key)
        delay_s = backoff.next_s(at_least_s=outcome.after_s)
        asyncio.get_running_loop().call_later(delay_s, self._ready.put_nowait, key)

    def _new_backoff(self) -> Backoff:
        base_s, max_s = self._limits.backoff_base_s, self._limits.backoff_max_s
        return Backoff(base_s=base_s, max_s=max_s, floor_s=base_s / 10)

    # ---- foreign reports ----

    def _refuse_foreign(self, sender: Sender, report: wire.Report) -> None:
        self._metrics.reports.labels("foreign").inc()
        sender.acknowledge(report.seq, refused=not_bound(report.worker, sender.node))
        now = self._clock()
        warned_at = self._warned_at.get(sender.node)
        if warned_at is not None and now < warned_at + self._limits.warn_every_s:
            return
        self._warned_at[sender.node] = now  # bounded by the number of nodes with a credential
        log.warning(
            "report for a worker that is not bound to its sender",
            node=sender.node,
            uid=report.uid[:64],
            worker=report.worker,
        )


def not_bound(worker: WorkerName, node: NodeName) -> str:
    return f"worker {worker!r} is not bound to node {node!r}"


def is_stale_after(older: WorkerReport, newer: WorkerReport) -> bool:
    """Whether `newer` would change nothing after `older`: the same rule as status.is_stale."""
    if older.ledger_id != newer.ledger_id:
        return False
    if older.attempt == newer.attempt:
        return older.body.status in wire.TERMINAL
    return older.attempt > newer.attempt
