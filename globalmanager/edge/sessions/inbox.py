"""The inbox: takes reports from the sessions and writes them into the status of their objects.

Sessions `offer` reports. A fixed number of writers passes each report to the report writer and then
acknowledges the report. Only the newest report of each worker waits. Its acknowledgement also
covers the older reports. A report changes nothing when its worker is not bound to the sending node.
The writer checks the binding again before each write. The inbox touches no socket and writes
nothing itself.

Four kinds of reports are refused: the worker is not bound to the sender, the body does not decode,
the object is gone, or it has no room for the report. A refused report is never written. A refusal
concerns this report alone and does not end the session, because a worker wrote the body and the
node's other workers must not suffer.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from common import wire
from common.clock import SYSTEM_CLOCK, Clock
from common.logs import get_logger
from common.session import WINDOW
from common.tasks import TaskGroup
from common.traces import Version
from edgeai.backoff import Backoff
from edgeai.errors import ProtocolError
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName, group_of
from globalmanager.contract import WorkerReport
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.desired_sets import Binding, DesiredSets
from globalmanager.edge.sessions.entries import Entry, Receipt, Sender, WorkerKey, is_stale_after
from globalmanager.edge.sessions.pauses import Pauses
from globalmanager.edge.sessions.ready import Ready
from globalmanager.traces import NO_TRACES, TaskTraces

log = get_logger(__name__)

GONE: Final = "gone"  # reason of a refusal: the report's object no longer exists


class Done(msgspec.Struct, frozen=True):
    """The report has taken effect, or changes nothing."""


class Refused(msgspec.Struct, frozen=True):
    """The report can never change the status, so the sender must not send it again."""

    reason: str


class Retry(msgspec.Struct, frozen=True):
    """The report could not be written now. The next attempt begins at the earliest after `after_s`
    seconds.
    """

    reason: str
    after_s: float = 0.0


class Dropped(msgspec.Struct, frozen=True):
    """Only a new session of the node can show whether the report still holds. The report is dropped
    without an acknowledgement, and its sessions end. A node that still has the report sends it
    again.
    """

    reason: str


Outcome = Done | Refused | Retry | Dropped


class ReportWriter(Protocol):
    async def write(self, key: TaskKey, uid: Uid, report: WorkerReport) -> Outcome:
        """Write a report into the status of exactly the object with this uid. Done means that the
        API has stored the report, or a newer one.
        """

    def ledgers_of(
        self, node: NodeName, key: TaskKey, workers: Iterable[WorkerName]
    ) -> Iterable[str]:
        """The ledgers of `node` that have reported these workers, as far as this replica knows."""


class InboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    reports_per_node: int = 2 * WINDOW
    """Largest number of unacknowledged reports of one node. A node that respects the window never
    reaches this number."""
    total_bytes: int = 64 * 1024 * 1024
    """Largest total size of all waiting reports, in encoded bytes."""
    writers: int = 64
    """Number of writes that run at the same time."""
    writers_per_object: int = 8
    """Number of writes about one object that run at the same time. A slow or refused object thus
    leaves most writers to the reports of other objects."""
    write_timeout_s: float = 30.0
    """Seconds after which an attempt to write counts as failed. The inbox then tries again."""
    backoff_base_s: float = 0.5
    """Longest delay in seconds before the first further attempt, for each worker."""
    backoff_max_s: float = 30.0
    """Longest delay in seconds before any further attempt."""
    warn_every_s: float = 10.0
    """Seconds. One node's reports for foreign workers cause at most one log line in this time."""


class Inbox:
    """Holds waiting reports, with limits on reports per node and on bytes.

    All calls come from the event loop's thread.

    Args:
        desired: knows which workers are bound to which node
    """

    def __init__(
        self,
        *,
        desired: DesiredSets,
        writer: ReportWriter,
        metrics: EdgeMetrics,
        limits: InboxLimits = InboxLimits(),  # noqa: B008 - frozen
        clock: Clock = SYSTEM_CLOCK,
        traces: TaskTraces = NO_TRACES,
    ) -> None:
        self._traces = traces
        self._desired = desired
        self._writer = writer
        self._metrics = metrics
        self._limits = limits
        self._clock = clock
        self._waiting: dict[WorkerKey, Entry] = {}
        self._active: dict[WorkerKey, Entry] = {}  # a writer works on these reports
        # keys in _ready, and keys that wait for their backoff
        self._scheduled: set[WorkerKey] = set()
        self._ready: Ready[WorkerKey] = Ready()  # _waiting limits its length
        # keys in _scheduled of an object with `writers_per_object` active reports, oldest first
        self._parked: dict[Uid, deque[WorkerKey]] = {}
        self._active_of: Counter[Uid] = Counter()
        self._pauses: Pauses[WorkerKey] = Pauses(self._ready.put)
        self._backoffs: dict[WorkerKey, Backoff] = {}
        self._reports_of: Counter[NodeName] = Counter()
        self._reports = 0  # the sum of the counts in _reports_of
        self._size_bytes = 0
        self._paused: dict[Sender, None] = {}  # senders that wait for room, the longest wait first
        self._warned_at: dict[NodeName, float] = {}
        metrics.inbox_reports.set_function(lambda: self._reports)
        metrics.inbox_bytes.set_function(lambda: self._size_bytes)
        metrics.inbox_oldest_s.set_function(self._oldest_s)

    @property
    def depth(self) -> int:
        """Number of reports that are not acknowledged yet."""
        return self._reports

    def _oldest_s(self) -> float:
        entries = (*self._waiting.values(), *self._active.values())
        return self._clock.elapsed() - min(entry.since for entry in entries) if entries else 0.0

    async def run(self) -> None:
        """Write reports until this task is cancelled. Then the waiting reports stay unacknowledged,
        so the nodes send them again.
        """
        async with TaskGroup() as writers:
            for number in range(self._limits.writers):
                writers.create_task(self._write(), name=f"inbox writer {number}")

    def offer(self, sender: Sender, report: wire.Report) -> bool:
        """Take a report in, or refuse the report.

        Returns: False when there is no room for another report. The caller must not read more
            reports from this sender until `resume` is called
        """
        key = WorkerKey(report.uid, report.worker, sender.node)
        binding = self._bound(key)
        if binding is None:
            self._refuse_foreign(sender, report)
            return self._has_capacity(sender)
        try:
            body = wire.unpack(report.body, wire.ReportBody)
        except ProtocolError as error:
            self._metrics.reports.labels("malformed").inc()
            sender.acknowledge(report.seq, refusal=str(error))
            return self._has_capacity(sender)
        worker_report = WorkerReport(
            node=sender.node,
            ledger_id=sender.ledger_id,
            worker=report.worker,
            attempt=report.attempt,
            revision=report.revision,
            body=body,
            group=group_of(binding.key),
            replaces=sender.replaces,
        )
        self._put(
            key,
            Entry(
                binding.key,
                worker_report,
                len(report.body),
                (Receipt(sender, report.seq),),
                since=self._clock.elapsed(),
            ),
        )
        return self._has_capacity(sender)

    def ledgers_of(self, node: NodeName, uids: Iterable[Uid]) -> frozenset[str]:
        """The ledgers that have reported workers of these tasks from `node`."""
        bindings = filter(None, (self._desired.binding_of(node, uid) for uid in uids))
        return frozenset(
            ledger
            for binding in bindings
            for ledger in self._writer.ledgers_of(node, binding.key, binding.workers)
        )

    def drop(self, sender: Sender) -> None:
        """Note that the session is over. The session's reports still take effect, but get no
        acknowledgement.
        """
        self._paused.pop(sender, None)

    def _bound(self, key: WorkerKey) -> Binding | None:
        """The binding of the worker to its node; None when the node may not report for the
        worker.
        """
        binding = self._desired.binding_of(key.node, key.uid)
        return binding if binding is not None and key.worker in binding.workers else None

    # ---- reports that wait ----

    def _put(self, key: WorkerKey, entry: Entry) -> None:
        self._count(entry)
        before = self._waiting.get(key)
        self._waiting[key] = entry if before is None else self._merge(before, entry)
        if entry.is_terminal and self._pauses.release(key.uid, key):
            self._ready.put(key)
        if key not in self._active:
            self._schedule(key)

    def _merge(self, older: Entry, newer: Entry) -> Entry:
        """Join two entries of one worker. Receipts of sessions that have ended are dropped."""
        self._discount(older)
        self._discount(newer)
        newest = older if is_stale_after(older.report, newer.report) else newer
        report = msgspec.structs.replace(newest.report, replaces=newer.report.replaces)
        live = tuple(r for r in older.receipts + newer.receipts if r.sender.is_live)
        merged = newest._replace(report=report, receipts=live, since=older.since)
        self._count(merged)
        return merged

    def _count(self, entry: Entry, sign: int = 1) -> None:
        for receipt in entry.receipts:
            self._reports_of[receipt.sender.node] += sign
            if not self._reports_of[receipt.sender.node]:
                del self._reports_of[receipt.sender.node]
        self._reports += sign * len(entry.receipts)
        self._size_bytes += sign * entry.size_bytes

    def _discount(self, entry: Entry) -> None:
        self._count(entry, -1)

    def _schedule(self, key: WorkerKey) -> None:
        if key not in self._scheduled:
            self._scheduled.add(key)
            self._ready.put(key)
        if self._waiting[key].is_terminal:
            self._ready.hasten(key)

    # ---- backpressure ----

    def _has_capacity(self, sender: Sender) -> bool:
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
            is_urgent = self._waiting[key].is_terminal
            if self._pauses.hold(key.uid, key, is_urgent=is_urgent):
                continue
            self._pauses.begin(key.uid)
            if self._active_of[key.uid] >= self._limits.writers_per_object:
                self._parked.setdefault(key.uid, deque()).append(key)
                continue
            self._scheduled.discard(key)
            entry = self._waiting.pop(key)
            self._active[key] = entry
            self._active_of[key.uid] += 1
            outcome = await self._attempt(key, entry)
            del self._active[key]
            self._release(key.uid)
            self._finish(key, entry, outcome)

    def _release(self, uid: Uid) -> None:
        """Give the place of a writer to the next parked report of the object."""
        self._active_of[uid] -= 1
        if not self._active_of[uid]:
            del self._active_of[uid]
        if queue := self._parked.get(uid):
            self._ready.put(queue.popleft())
            if not queue:
                del self._parked[uid]

    async def _attempt(self, key: WorkerKey, entry: Entry) -> Outcome:
        binding = self._bound(key)
        if binding is None:
            return Refused(not_bound(key.worker, key.node))
        report = msgspec.structs.replace(
            entry.report, is_former=key.worker in binding.former, version=binding.version
        )
        try:
            async with asyncio.timeout(self._limits.write_timeout_s):
                return await self._writer.write(entry.task, key.uid, report)
        except TimeoutError:
            return Retry(f"not written within {self._limits.write_timeout_s:g} s")
        # a fault of one object must not stop the reports of other objects
        except Exception as error:
            log.exception("report cannot be folded", task=entry.task, worker=key.worker)
            return Retry(type(error).__name__)

    def _finish(self, key: WorkerKey, entry: Entry, outcome: Outcome) -> None:
        if isinstance(outcome, Retry):
            self._retry(key, entry, outcome)
        else:
            self._conclude(key, entry, outcome)
        self._resume_paused()

    def _conclude(self, key: WorkerKey, entry: Entry, outcome: Done | Refused | Dropped) -> None:
        self._discount(entry)
        self._backoffs.pop(key, None)
        name = type(outcome).__name__.lower()
        reason = "" if isinstance(outcome, Done) else outcome.reason
        if reason:
            fields = {"task": entry.task, "worker": key.worker, "outcome": name, "reason": reason}
            log.warning("report not written", **fields)
        self._metrics.reports.labels(name).inc(len(entry.receipts))
        if isinstance(outcome, Done):
            self._trace_written(key, entry)
        for sender, seq in entry.receipts:
            if isinstance(outcome, Dropped):
                sender.close(wire.Close.GOING_AWAY, reason)
            else:
                sender.acknowledge(seq, refusal=reason)
        if key in self._waiting:
            self._schedule(key)

    def _trace_written(self, key: WorkerKey, entry: Entry) -> None:
        binding = self._bound(key)
        if binding is not None:
            way = Version(binding.key, key.uid, binding.version)
            waited_s = self._clock.elapsed() - entry.since
            self._traces.written(key.node, way, key.worker, waited_s)

    def _retry(self, key: WorkerKey, entry: Entry, outcome: Retry) -> None:
        newer = self._waiting.get(key)
        # `entry` stayed in the counts while a writer worked on it, as waiting entries do.
        self._waiting[key] = entry if newer is None else self._merge(entry, newer)
        backoff = self._backoffs.get(key) or self._new_backoff()
        self._backoffs[key] = backoff
        # The first failure is ordinary (a conflict), so it has no log line. The second failure in a
        # row gets one log line for each worker.
        if backoff.failures == 1:
            log.warning(
                "report not written, trying again",
                task=entry.task,
                worker=key.worker,
                reason=outcome.reason,
            )
        self._scheduled.add(key)
        delay_s = backoff.next_s(at_least_s=outcome.after_s)
        asyncio.get_running_loop().call_later(delay_s, self._ready.put, key)

    def _new_backoff(self) -> Backoff:
        base_s, max_s = self._limits.backoff_base_s, self._limits.backoff_max_s
        return Backoff(base_s=base_s, max_s=max_s, floor_s=base_s / 10)

    # ---- reports for workers of other nodes ----

    def _refuse_foreign(self, sender: Sender, report: wire.Report) -> None:
        self._metrics.reports.labels("foreign").inc()
        sender.acknowledge(report.seq, refusal=not_bound(report.worker, sender.node))
        now = self._clock.elapsed()
        warned_at = self._warned_at.get(sender.node)
        if warned_at is not None and now < warned_at + self._limits.warn_every_s:
            return
        self._warned_at[sender.node] = now  # one entry for each node with a credential
        log.warning(
            "report for a worker that is not bound to its sender",
            node=sender.node,
            uid=report.uid[:64],
            worker=report.worker,
        )


def not_bound(worker: WorkerName, node: NodeName) -> str:
    return f"worker {worker!r} is not bound to node {node!r}"
