"""How the known state of a worker changes with a message and with an observation. Pure.

The ledger calls `after_message` and `after_observation` inside its transactions. This module does
no I/O and reads no clock. Both functions return the same object if nothing changed; then the ledger
writes nothing.

A worker is one pod's part in a task. After a restart the worker has a new process; each process is
one attempt. A count is a total of one process, so the total of the worker is the sum over its
processes. Any other number is the value of the newest process. The message says which names are
counts; a name that has been a count stays a count.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from common.errors import EdgeAIError
from common.wire import TERMINAL, ReportBody, WorkerStatus

MAX_WORKER_PROCESSES: Final = 16  # kept for each worker; counts of older processes are merged
MAX_COUNTS: Final = 32  # different names of counts, over all processes of a worker
UPDATE_TIME: Final = "updateTime"  # changes in each message; this change alone makes no report

Counts = Mapping[str, int]
Number = int | float


class TooManyCounts(EdgeAIError):
    """The processes of a worker use more than MAX_COUNTS different names of counts."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"output.counts: with these the processes of this worker count {count} names, limit "
            f"{MAX_COUNTS}; count under the same names in each process"
        )


class WorkerMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a worker's process. `counts` are totals since the process started."""

    instance: str = ""
    """Identifies the process among the processes of its worker; "": the process has no name."""
    sequence: int | None = None
    """Grows with each message of the process; None: the process does not number its messages."""
    phase: str = ""
    """The worker's own word for its current work, for example "training"."""
    status: WorkerStatus = "running"
    """The state of the process in its life cycle."""
    reason: str = ""
    """The reason for the status. Only messages of the LocalController itself have a reason."""
    heartbeat_s: float = 0.0
    """The process promises one message in each period of this length, seconds; 0: no promise."""
    counts: dict[str, int] = {}
    numbers: dict[str, Number] = {}
    details: dict[str, str] = {}


class WorkerProcess(msgspec.Struct, frozen=True):
    """One process of a worker, with the counts of its newest message."""

    attempt: int
    sequence: int | None
    counts: dict[str, int]


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the LocalController knows about one worker of one task."""

    attempt: int = 0
    instance: str | None = None
    """The process of this attempt; None: this process has sent no message yet."""
    status: WorkerStatus = "running"
    reason: str = ""
    """Why the LocalController set the status; "": the status comes from the process."""
    phase: str = ""
    heartbeat_s: float = 0.0
    numbers: dict[str, Number] = {}
    details: dict[str, str] = {}
    settled: dict[str, int] = {}
    """Sum of the counts of processes that are no longer in `processes`."""
    processes: dict[str, WorkerProcess] = {}
    """By instance, oldest attempt first."""

    @property
    def is_finished(self) -> bool:
        return self.status in TERMINAL

    @property
    def totals(self) -> dict[str, int]:
        sums = dict(self.settled)
        for process in self.processes.values():
            sums = _plus(sums, process.counts)
        return sums

    @property
    def count_names(self) -> set[str]:
        """The names of all counts of all processes of this worker."""
        return {*self.settled, *(name for p in self.processes.values() for name in p.counts)}

    def report(self, observed_at: str) -> ReportBody:
        return ReportBody(
            phase=self.phase,
            status=self.status,
            reason=self.reason,
            task_info={**self.numbers, **self.totals},
            details=self.details,
            observed_at=observed_at,
        )


NEW_WORKER: Final = WorkerState()


def after_message(worker: WorkerState, message: WorkerMessage) -> WorkerState:
    """The state of the worker after `message` of one of its processes. Raises: TooManyCounts"""
    count_names = worker.count_names | message.counts.keys()
    if len(count_names) > MAX_COUNTS:
        raise TooManyCounts(len(count_names))
    process = worker.processes.get(message.instance)
    if process is None or _is_unnamed_successor(worker, message):
        return _with_newest_facts(_with_new_process(worker, message), message)
    if _is_stale(process, message):
        return worker
    if _is_current(worker, process) and worker.is_finished:
        return _revived(worker, message) if _disproves_end(worker, message) else worker
    updated = _with_counts(worker, message, process.attempt)
    if _is_current(worker, process):
        updated = _with_newest_facts(updated, message)
    return worker if _is_same_report(worker, updated, message.instance) else updated


def after_observation(worker: WorkerState, status: WorkerStatus, reason: str) -> WorkerState:
    """The state of the worker after a watch saw the worker silent, dead, or running again."""
    if worker.is_finished or (worker.status, worker.reason) == (status, reason):
        return worker
    if status == "running" and (worker.status != "lost" or worker.heartbeat_s):
        # A worker that is not lost needs no correction. A worker with heartbeats must itself
        # report that it runs again.
        return worker
    return msgspec.structs.replace(
        worker, attempt=max(worker.attempt, 1), status=status, reason=reason
    )


def _with_new_process(worker: WorkerState, message: WorkerMessage) -> WorkerState:
    """Add the process that sent its first message, and make this process the current one."""
    # An observation may have begun the attempt before the process sent its first message.
    is_begun = worker.attempt > 0 and worker.instance is None and not worker.is_finished
    attempt = worker.attempt if is_begun else worker.attempt + 1
    settled = dict(worker.settled)
    processes = dict(worker.processes)
    if message.instance in processes:
        settled = _plus(settled, processes.pop(message.instance).counts)
    while len(processes) >= MAX_WORKER_PROCESSES:
        settled = _plus(settled, processes.pop(next(iter(processes))).counts)
    processes[message.instance] = WorkerProcess(attempt, message.sequence, message.counts)
    return msgspec.structs.replace(
        worker, attempt=attempt, instance=message.instance, settled=settled, processes=processes
    )


def _disproves_end(worker: WorkerState, message: WorkerMessage) -> bool:
    """Whether `message` shows that the process still runs, although a watch saw its end.

    A message without a heartbeat promise proves nothing: the process may have ended after it.
    """
    return bool(worker.reason) and message.heartbeat_s > 0


def _revived(worker: WorkerState, message: WorkerMessage) -> WorkerState:
    """Begin a new attempt, because the cloud never changes the final state of an attempt."""
    attempt = worker.attempt + 1
    revived = msgspec.structs.replace(_with_counts(worker, message, attempt), attempt=attempt)
    return _with_newest_facts(revived, message)


def _with_counts(worker: WorkerState, message: WorkerMessage, attempt: int) -> WorkerState:
    process = WorkerProcess(attempt, message.sequence, message.counts)
    return msgspec.structs.replace(
        worker, processes={**worker.processes, message.instance: process}
    )


def _with_newest_facts(worker: WorkerState, message: WorkerMessage) -> WorkerState:
    """Take all of `message` except its counts. Only for a message of the current process."""
    count_names = worker.count_names
    return msgspec.structs.replace(
        worker,
        status=message.status,
        reason=message.reason,
        phase=message.phase,
        heartbeat_s=message.heartbeat_s,
        numbers={k: v for k, v in message.numbers.items() if k not in count_names},
        details=message.details,
    )


def _is_current(worker: WorkerState, process: WorkerProcess) -> bool:
    return process.attempt == worker.attempt


def _is_stale(process: WorkerProcess, message: WorkerMessage) -> bool:
    """Whether a newer message of the same process came earlier."""
    if process.sequence is None or message.sequence is None:
        return False
    return message.sequence <= process.sequence


def _is_unnamed_successor(worker: WorkerState, message: WorkerMessage) -> bool:
    """Whether `message` is from a new process, where neither the new nor the old one has a name.

    The process is new if the message comes after the end of the old process, or if the message has
    smaller counts.
    """
    if message.instance:
        return False
    if worker.is_finished and worker.reason:
        return True
    if message.sequence is not None:  # a message that came late may have smaller counts, too
        return False
    is_restarted = worker.is_finished and message.status == "running"
    return is_restarted or _counts_fell(worker.processes[message.instance].counts, message.counts)


def _counts_fell(known: Counts, new: Counts) -> bool:
    """Whether any count is smaller than before. Counts of one process only grow."""
    return any(new.get(name, count) < count for name, count in known.items())


def _is_same_report(old: WorkerState, new: WorkerState, instance: str) -> bool:
    """Whether the cloud needs no new report. `instance`: the only process that may differ."""
    return _reported_facts(old, instance) == _reported_facts(new, instance)


def _reported_facts(worker: WorkerState, instance: str) -> tuple[object, ...]:
    details = {name: text for name, text in worker.details.items() if name != UPDATE_TIME}
    return (
        worker.status,
        worker.reason,
        worker.phase,
        worker.heartbeat_s,
        worker.numbers,
        details,
        worker.processes[instance].counts,
    )


def _plus(left: Counts, right: Counts) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in (*left, *right)}
