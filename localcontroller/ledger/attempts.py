"""How what a worker says, and what is seen of it, changes what is known of it. Pure.

The ledger calls `heard` and `observed` inside its transactions. Nothing here does I/O or reads
a clock. The same object comes back where nothing changed, so that nothing is written.

A worker is one pod's part in a task; its processes come and go, each an attempt. Counts are
totals of one process, so a worker's totals are the sum over its processes. Any other number is
the newest process's alone. The message says what is a count; a name that was one stays one.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from common.errors import EdgeAIError
from common.wire import TERMINAL, ReportBody, WorkerStatus

MAX_PROCESSES: Final = 16  # of one worker kept apart; older ones are settled into one sum
MAX_COUNTS: Final = 32  # names that a worker's processes count, all together
UPDATE_TIME: Final = "updateTime"  # differs in every message, so it alone is no change

Counts = Mapping[str, int]
Number = int | float


class TooManyCounts(EdgeAIError):
    def __init__(self, count: int) -> None:
        super().__init__(
            f"output.counts: with these the processes of this worker count {count} names, limit "
            f"{MAX_COUNTS}; count under the same names in each process"
        )


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What a process says of itself. `counts` are totals since it started."""

    instance: str = ""
    """Tells this process from others of the same worker; "" when it has no name for itself."""
    sequence: int | None = None
    """Grows with each message of a process; None when it does not number them."""
    phase: str = ""
    status: WorkerStatus = "running"
    reason: str = ""
    """Why, where that is known: of what the LocalController itself does."""
    heartbeat_s: float = 0.0
    """It promises a message at least so often; 0: no promise."""
    counts: dict[str, int] = {}
    numbers: dict[str, Number] = {}
    details: dict[str, str] = {}


class Process(msgspec.Struct, frozen=True):
    """One incarnation of a worker: the newest that it said of its counts."""

    attempt: int
    sequence: int | None
    counts: dict[str, int]


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one worker of one task."""

    attempt: int = 0
    instance: str | None = None
    """The process of this attempt; None while it has not been heard."""
    status: WorkerStatus = "running"
    reason: str = ""
    """Why, where the LocalController said the status; "" where the process did."""
    phase: str = ""
    heartbeat_s: float = 0.0
    numbers: dict[str, Number] = {}
    details: dict[str, str] = {}
    settled: dict[str, int] = {}
    """Counts of processes that are not kept apart any more."""
    processes: dict[str, Process] = {}
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
        """What any of its processes counted."""
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


NOBODY: Final = Worker()


def heard(worker: Worker, message: Message) -> Worker:
    """The worker after `message` of one of its processes. Raises: TooManyCounts"""
    count_names = worker.count_names | message.counts.keys()
    if len(count_names) > MAX_COUNTS:
        raise TooManyCounts(len(count_names))
    process = worker.processes.get(message.instance)
    if process is None or _is_unnamed_successor(worker, message):
        return _adopt(_begin(worker, message), message)
    if _is_stale(process, message):
        return worker
    if _is_current(worker, process) and worker.is_finished:
        return _revive(worker, message) if _is_alive_after_all(worker, message) else worker
    updated = _count(worker, message, process.attempt)
    if _is_current(worker, process):
        updated = _adopt(updated, message)
    return worker if _says_nothing_new(worker, updated, message.instance) else updated


def observed(worker: Worker, status: WorkerStatus, reason: str) -> Worker:
    """The worker after it was seen from outside: silent, dead, or back ("running")."""
    if worker.is_finished or (worker.status, worker.reason) == (status, reason):
        return worker
    if status == "running" and (worker.status != "lost" or worker.heartbeat_s):
        return worker  # it is not missed; or it is to say itself that it is back
    return msgspec.structs.replace(
        worker, attempt=max(worker.attempt, 1), status=status, reason=reason
    )


def _begin(worker: Worker, message: Message) -> Worker:
    """Make room for a process that was not heard before, and make it the current one."""
    unheard = worker.attempt > 0 and worker.instance is None and not worker.is_finished
    attempt = worker.attempt if unheard else worker.attempt + 1
    settled = dict(worker.settled)
    processes = dict(worker.processes)
    if message.instance in processes:
        settled = _plus(settled, processes.pop(message.instance).counts)
    while len(processes) >= MAX_PROCESSES:
        settled = _plus(settled, processes.pop(next(iter(processes))).counts)
    processes[message.instance] = Process(attempt, message.sequence, message.counts)
    return msgspec.structs.replace(
        worker, attempt=attempt, instance=message.instance, settled=settled, processes=processes
    )


def _is_alive_after_all(worker: Worker, message: Message) -> bool:
    """Its end was seen from outside, and it speaks and promises to go on: what was seen is wrong.

    Without the promise it may be the last word of a process that has ended since.
    """
    return bool(worker.reason) and message.heartbeat_s > 0


def _revive(worker: Worker, message: Message) -> Worker:
    """As a new attempt, because the cloud keeps the final state of this one for good."""
    attempt = worker.attempt + 1
    revived = msgspec.structs.replace(_count(worker, message, attempt), attempt=attempt)
    return _adopt(revived, message)


def _count(worker: Worker, message: Message, attempt: int) -> Worker:
    process = Process(attempt, message.sequence, message.counts)
    return msgspec.structs.replace(
        worker, processes={**worker.processes, message.instance: process}
    )


def _adopt(worker: Worker, message: Message) -> Worker:
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


def _is_current(worker: Worker, process: Process) -> bool:
    return process.attempt == worker.attempt


def _is_stale(process: Process, message: Message) -> bool:
    if process.sequence is None or message.sequence is None:
        return False
    return message.sequence <= process.sequence


def _is_unnamed_successor(worker: Worker, message: Message) -> bool:
    """A process without a name speaks after the end of its predecessor, or counts from anew."""
    if message.instance:
        return False
    if worker.is_finished and worker.reason:
        return True
    if message.sequence is not None:  # a message may have been overtaken
        return False
    is_anew = worker.is_finished and message.status == "running"
    return is_anew or _counts_fell(worker.processes[message.instance].counts, message.counts)


def _counts_fell(known: Counts, said: Counts) -> bool:
    """Totals of one process only grow."""
    return any(said.get(name, count) < count for name, count in known.items())


def _says_nothing_new(old: Worker, new: Worker, instance: str) -> bool:
    return _essence(old, instance) == _essence(new, instance)


def _essence(worker: Worker, instance: str) -> tuple[object, ...]:
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
