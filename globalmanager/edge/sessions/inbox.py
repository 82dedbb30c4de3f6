"""The inbox: takes reports from the sessions and writes them into the status of their objects.

Sessions `offer` reports. Of each worker only the newest report waits, with a receipt for each older
report that it replaced. One writer at a time takes all reports that wait for a job, passes them to
the report writer, and then acknowledges each receipt: a thousand workers of one job cost one write,
and not a thousand. The ends of workers go first. A report changes nothing when its worker is not
bound to the sending node. The writer checks the binding again before each write. The inbox touches
no socket and writes nothing itself: `registry` offers the reports, `report_writer` writes them
(docs/architecture.md, "The way of a status").

A thousand jobs whose workers report ten times a second would keep the API server busy with values
that nobody has read yet. So a job is written at most once in a pause, and then with the newest
reports. With few jobs and workers the pause is so short that nobody notices. The end of a worker
waits for no pause. A job with many workers has their entries in slices. Each slice is written as if
it were a job, with longer pauses, and the fault of one slice stops no other.

Four kinds of reports are refused: the worker is not bound to the sender, the body does not decode,
the object is gone, or it has no room for the report. A refused report is never written. A refusal
concerns this report alone and does not end the session, because a worker wrote the body and the
node's other workers must not suffer.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from common import wire
from common.clock import SYSTEM_CLOCK, Clock, loop_time
from common.logs import get_logger
from common.session import WINDOW
from common.tasks import TaskGroup
from common.traces import Version
from edgeai.backoff import Backoff
from edgeai.errors import EdgeAIError, ProtocolError
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName, group_of
from globalmanager.contract import WorkerReport
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.desired_sets import Binding, DesiredSets
from globalmanager.edge.sessions.entries import (
    Entry,
    Lane,
    Mailbox,
    Receipt,
    ReportKey,
    Sender,
    is_stale_after,
)
from globalmanager.traces import NO_TRACES, TaskTraces

log = get_logger(__name__)

GONE: Final = "gone"  # reason of a refusal: the report's object no longer exists


class Done(msgspec.Struct, frozen=True):
    """The report has taken effect, or changes nothing."""


class Refused(msgspec.Struct, frozen=True):
    """The report can never change the status, so the sender must not send it again."""

    reason: str


class Retry(msgspec.Struct, frozen=True):
    """This report could not be written now, although others could."""

    reason: str
    after_s: float = 0.0
    """The least time until the next attempt."""


class Dropped(msgspec.Struct, frozen=True):
    """Only a new session of the node can show whether the report still holds, so it is dropped
    without an acknowledgement, and its sessions end. A node that still has it sends it again.
    """

    reason: str


Outcome = Done | Refused | Retry | Dropped


class ReportWriter(Protocol):
    async def write(
        self, key: TaskKey, uid: Uid, reports: Sequence[WorkerReport]
    ) -> Sequence[Outcome]:
        """Write reports into the status of exactly the object with this uid.

        Args: reports: of workers whose entries are in the same slice
        Returns: the outcome of each report. Done means that the API has stored the report, or a
            newer one
        Raises: EdgeAIError when none of the reports could be written now
        """

    def slice_of(self, key: TaskKey, worker: WorkerName) -> str:
        """The slice of the job's status with the entry of the worker; "" for .status itself."""

    def ledgers_of(
        self, node: NodeName, key: TaskKey, workers: Iterable[WorkerName]
    ) -> Iterable[str]:
        """The ledgers of `node` that have reported these workers, as far as this replica knows."""


class InboxLimits(msgspec.Struct, frozen=True, kw_only=True):
    reports_per_node: int = 2 * WINDOW
    """Most unacknowledged reports of a node. One that respects the window never reaches this."""
    total_bytes: int = 64 * 1024 * 1024
    """Largest total size of all waiting reports, in encoded bytes."""
    writers: int = 64
    """Number of jobs that are written at the same time. Each job has one writer at most."""
    slice_pause_s: float = 8.0
    """Least pause between two writes of a slice, because each of them is the whole slice."""
    slice_end_pause_s: float = 4.0
    """As `slice_pause_s`, while the end of a worker waits."""
    write_bytes: int = 1024 * 1024
    """Size of the reports of one write, in encoded bytes. The first report may be larger."""
    write_timeout_s: float = 30.0
    """Seconds after which an attempt to write counts as failed. The inbox then tries again."""
    backoff_base_s: float = 0.5
    """Longest delay in seconds before the first further attempt, for each job."""
    backoff_max_s: float = 30.0
    """Longest delay in seconds before any further attempt."""
    pause_s: float = 1.4
    """Longest pause between two writes of a job. A value is at most 2 s old: it leaves its node
    after at most 0.3 s (GAP_S of its session), waits for this time, and has the rest for the
    way to the API server and to a watch."""
    writes_per_s: float = 100.0
    """Writes per second about all jobs together, up to which the pauses are shorter. Each worker of
    a write counts."""
    warn_every_s: float = 10.0
    """Seconds. One node's reports for foreign workers cause at most one log line in this time."""


class Inbox:
    """Holds waiting reports, with limits on reports per node and on bytes. All calls come from the
    event loop's thread.
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
        self._mailboxes: dict[tuple[Uid, str], Mailbox] = {}  # (uid, slice)
        # (lane, turn, mailbox). A mailbox that has changed its lane is in the queue twice.
        self._ready: asyncio.PriorityQueue[tuple[Lane, int, Mailbox]] = asyncio.PriorityQueue()
        self._turns = itertools.count()
        self._reports_of: Counter[NodeName] = Counter()
        self.depth = 0
        """Number of reports that are not acknowledged yet: the sum of the counts in _reports_of."""
        self._size_bytes = 0
        self._paused: dict[Sender, None] = {}  # senders that wait for room, the longest wait first
        self._warned_at: dict[NodeName, float] = {}
        metrics.inbox_reports.set_function(lambda: self.depth)
        metrics.inbox_bytes.set_function(lambda: self._size_bytes)
        metrics.inbox_oldest_s.set_function(self._oldest_s)

    def _oldest_s(self) -> float:
        since = [entry.since for mailbox in self._mailboxes.values() for entry in mailbox.entries()]
        return self._clock.elapsed() - min(since) if since else 0.0

    async def run(self) -> None:
        """Write reports until this task is cancelled. The nodes send again what waits then."""
        async with TaskGroup() as writers:
            for number in range(self._limits.writers):
                writers.create_task(self._write(), name=f"inbox writer {number}")

    def offer(self, sender: Sender, report: wire.Report) -> bool:
        """Take a report in, or refuse it. Returns: False when there is no room for another one: no
        more may be read from this sender until its `resume`
        """
        key = ReportKey(report.uid, report.worker, sender.node)
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
        receipts, now = (Receipt(sender, report.seq),), self._clock.elapsed()
        self._put(key, Entry(binding.key, worker_report, len(report.body), receipts, now))
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
        """Note that the session is over. Its reports take effect without an acknowledgement."""
        self._paused.pop(sender, None)

    def _bound(self, key: ReportKey) -> Binding | None:
        """The binding of the worker to its node; None when the node may not report for it."""
        binding = self._desired.binding_of(key.node, key.uid)
        return binding if binding is not None and key.worker in binding.workers else None

    # ---- reports that wait ----

    def _put(self, key: ReportKey, entry: Entry) -> None:
        self._count(entry)
        slice_ = self._writer.slice_of(entry.task, key.worker)
        mailbox = self._mailboxes.get((key.uid, slice_))
        if mailbox is None:
            mailbox = self._mailboxes[key.uid, slice_] = Mailbox(key.uid, entry.task, slice_)
        if key in mailbox.deferred:
            mailbox.deferred[key] = self._merge(mailbox.deferred[key], entry)
            return
        before = mailbox.waiting.get(key)
        mailbox.put(key, entry if before is None else self._merge(before, entry))
        self._schedule(mailbox)

    def _put_back(self, mailbox: Mailbox, key: ReportKey, entry: Entry) -> None:
        """Let a report that was not written wait again. It stayed in the counts meanwhile."""
        newer = mailbox.waiting.get(key)
        mailbox.put(key, entry if newer is None else self._merge(entry, newer))

    def _merge(self, older: Entry, newer: Entry) -> Entry:
        """Join two entries of one worker. Receipts of sessions that have ended are dropped."""
        self._count(older, -1)
        self._count(newer, -1)
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
        self.depth += sign * len(entry.receipts)
        self._size_bytes += sign * entry.size_bytes

    def _schedule(self, mailbox: Mailbox) -> None:
        """Queue the mailbox, when its pause and its backoff are over and no writer works on it."""
        if mailbox.active:
            return
        if mailbox.due_s() > loop_time():
            self._wake_at(mailbox.due_s(), mailbox)
        elif mailbox.waiting:
            self._join(mailbox, Lane.ENDS if mailbox.is_urgent else Lane.OTHERS)
        elif not mailbox.deferred:
            self._mailboxes.pop((mailbox.uid, mailbox.slice), None)
            if mailbox.timer is not None:
                mailbox.timer.cancel()

    def _join(self, mailbox: Mailbox, lane: Lane) -> None:
        if mailbox.lane is None or lane < mailbox.lane:
            mailbox.lane = lane
            self._ready.put_nowait((lane, next(self._turns), mailbox))

    def _wake_at(self, due_s: float, mailbox: Mailbox) -> None:
        if mailbox.timer is not None:
            if mailbox.timer.when() <= due_s:
                return
            mailbox.timer.cancel()
        mailbox.timer = asyncio.get_running_loop().call_at(due_s, self._wake, mailbox)

    def _wake(self, mailbox: Mailbox) -> None:
        mailbox.timer = None
        self._schedule(mailbox)

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
            _, _, mailbox = await self._ready.get()
            if mailbox.lane is None:
                continue  # its turn came in the other lane
            mailbox.take(self._limits.write_bytes)
            # A write costs as much as all entries of its job, so that many workers pause longer.
            shares = len(self._mailboxes) + len(mailbox.active)
            if mailbox.slice:
                mailbox.pause(self._limits.slice_pause_s, end_s=self._limits.slice_end_pause_s)
            else:
                mailbox.pause(min(self._limits.pause_s, shares / self._limits.writes_per_s))
            try:
                outcomes = await self._attempt(mailbox)
            except (EdgeAIError, TimeoutError) as error:
                self._retry(mailbox, error)
            # a fault of one job must not stop the reports of other jobs
            except Exception as error:
                log.exception("reports not written", task=mailbox.task)
                self._retry(mailbox, error)
            else:
                self._finish(mailbox, outcomes)
            self._schedule(mailbox)
            self._resume_paused()

    async def _attempt(self, mailbox: Mailbox) -> dict[ReportKey, Outcome]:
        """Raises: EdgeAIError, TimeoutError when no report could be written"""
        outcomes: dict[ReportKey, Outcome] = {}
        reports: dict[ReportKey, WorkerReport] = {}
        for key, entry in mailbox.active.items():
            if binding := self._bound(key):
                reports[key] = msgspec.structs.replace(
                    entry.report,
                    is_former=key.worker in binding.former,
                    generation=binding.generation,
                )
            else:
                outcomes[key] = Refused(not_bound(key.worker, key.node))
        # Nodes of one job have the same generation, but for the moments of a change.
        for generation in {report.generation for report in reports.values()}:
            keys = [key for key, report in reports.items() if report.generation == generation]
            async with asyncio.timeout(self._limits.write_timeout_s):
                written = await self._writer.write(
                    mailbox.task, mailbox.uid, [reports[key] for key in keys]
                )
            outcomes.update(zip(keys, written, strict=True))
        return outcomes

    def _finish(self, mailbox: Mailbox, outcomes: Mapping[ReportKey, Outcome]) -> None:
        mailbox.backoff = None
        for key, entry in mailbox.release().items():
            outcome = outcomes[key]
            if isinstance(outcome, Retry):
                self._defer(mailbox, key, entry, outcome)
            else:
                self._conclude(key, entry, outcome)

    def _defer(self, mailbox: Mailbox, key: ReportKey, entry: Entry, outcome: Retry) -> None:
        """Let a report that alone could not be written wait apart from the reports of others."""
        newer = mailbox.waiting.pop(key, None)
        mailbox.deferred[key] = entry if newer is None else self._merge(entry, newer)
        fields = {"task": entry.task, "worker": key.worker, "reason": outcome.reason}
        log.warning("report not written, trying again", **fields)
        delay_s = max(outcome.after_s, self._limits.backoff_max_s)
        asyncio.get_running_loop().call_later(delay_s, self._try_again, mailbox, key)

    def _try_again(self, mailbox: Mailbox, key: ReportKey) -> None:
        self._put_back(mailbox, key, mailbox.deferred.pop(key))
        self._schedule(mailbox)

    def _retry(self, mailbox: Mailbox, error: Exception) -> None:
        """Put all reports back. The job is tried again after a growing delay."""
        for key, entry in mailbox.release().items():
            self._put_back(mailbox, key, entry)
        if mailbox.backoff is None:
            base_s, max_s = self._limits.backoff_base_s, self._limits.backoff_max_s
            mailbox.backoff = Backoff(base_s=base_s, max_s=max_s, floor_s=base_s / 10)
        # The first failure is ordinary (a conflict). The second in a row gets one log line.
        if mailbox.backoff.failures == 1:
            reason = str(error) or type(error).__name__
            log.warning("reports not written, trying again", task=mailbox.task, reason=reason)
        delay_s = mailbox.backoff.next_s(at_least_s=getattr(error, "retry_after_s", 0.0))
        mailbox.retry_at_s = loop_time() + delay_s

    def _conclude(self, key: ReportKey, entry: Entry, outcome: Done | Refused | Dropped) -> None:
        self._count(entry, -1)
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

    def _trace_written(self, key: ReportKey, entry: Entry) -> None:
        binding = self._bound(key)
        if binding is not None:
            way = Version(binding.key, key.uid, binding.version)
            waited_s = self._clock.elapsed() - entry.since
            self._traces.written(key.node, way, key.worker, waited_s)

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
