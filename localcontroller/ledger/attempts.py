"""How the record of a worker changes with a message and with an observation. Pure.

The functions return the same object if nothing changed; then the ledger writes nothing.

A worker is one pod's part in a task. After a restart the worker has a new process; each process is
one attempt. A count is a total of one process, so the total of the worker is the sum over its
processes. Any other number is the value of the newest process. The message says which names are
counts; a name that has been a count stays a count.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from common.wire import POD_UID, TERMINAL, ReportBody, WorkerStatus
from edgeai.errors import EdgeAIError

MAX_WORKER_PROCESSES: Final = 256  # kept for each worker; counts of ended processes are merged
MAX_COUNTS: Final = 32  # different names of counts, over all processes of a worker
UPDATE_TIME: Final = "updateTime"  # changes in each message; this change alone makes no report

Counts = Mapping[str, int]
Number = int | float


class TooManyCounts(EdgeAIError):
    """The ledger keeps at most MAX_COUNTS different names of counts for a worker."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"output.counts: with these the processes of this worker count {count} names, limit "
            f"{MAX_COUNTS}; count under the same names in each process"
        )


class TooManyProcesses(EdgeAIError):
    """All processes that the ledger keeps for a worker may still speak."""

    def __init__(self) -> None:
        super().__init__(
            f"{MAX_WORKER_PROCESSES} processes report as this worker already: let one of its "
            "processes report for the others"
        )


MaySpeak = Callable[[str], bool]
"""Instance -> whether this process may still send a message."""


def may_always_speak(_instance: str) -> bool:
    return True


class ProcessMessage(msgspec.Struct, frozen=True, kw_only=True):
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


class ProcessRecord(msgspec.Struct, frozen=True):
    """The record of one process of a worker, with the counts of the newest message."""

    attempt: int
    sequence: int | None
    counts: dict[str, int]


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The ledger's record of one worker of one task: everything that the LocalController knows."""

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
    past_counts: dict[str, int] = {}
    """Sum of the counts of processes that are no longer in `processes`."""
    processes: dict[str, ProcessRecord] = {}
    """By instance, oldest attempt first."""

    @property
    def is_finished(self) -> bool:
        return self.status in TERMINAL

    @property
    def totals(self) -> dict[str, int]:
        sums = dict(self.past_counts)
        for process in self.processes.values():
            sums = _plus(sums, process.counts)
        return sums

    @property
    def count_names(self) -> set[str]:
        """The names of all counts of all processes of this worker."""
        return {*self.past_counts, *(name for p in self.processes.values() for name in p.counts)}

    def report(self, observed_at: str) -> ReportBody:
        """What the ledger keeps until the cloud has it. Args: observed_at: RFC 3339 time"""
        return ReportBody(
            phase=self.phase,
            status=self.status,
            reason=self.reason,
            task_info={**self.numbers, **self.totals},
            details=self.details,
            observed_at=observed_at,
        )


NEW_RECORD: Final = WorkerRecord()


def after_message(
    record: WorkerRecord, message: ProcessMessage, *, may_speak: MaySpeak = may_always_speak
) -> WorkerRecord:
    """The record after a message of a process. Raises: TooManyCounts, TooManyProcesses"""
    count_names = record.count_names | message.counts.keys()
    if len(count_names) > MAX_COUNTS:
        raise TooManyCounts(len(count_names))
    process = record.processes.get(message.instance)
    if process is None or _is_unnamed_successor(record, message):
        return _with_newest_facts(_with_new_process(record, message, may_speak), message)
    if _is_stale(process, message):
        return record
    is_current = process.attempt == record.attempt
    if is_current and record.is_finished:
        return _revived(record, message) if _disproves_end(record, message) else record
    updated = _with_counts(record, message, process.attempt)
    if is_current:
        updated = _with_newest_facts(updated, message)
    is_same = _reported_facts(record, message.instance) == _reported_facts(
        updated, message.instance
    )
    return record if is_same else updated


def after_observation(record: WorkerRecord, status: WorkerStatus, reason: str) -> WorkerRecord:
    """The record after a watch saw the worker silent, dead, or running again."""
    if record.is_finished or (record.status, record.reason) == (status, reason):
        return record
    if status == "running" and (record.status != "lost" or record.heartbeat_s):
        # One that is not lost needs no correction; one with heartbeats must speak for itself.
        return record
    return msgspec.structs.replace(
        record, attempt=max(record.attempt, 1), status=status, reason=reason
    )


def after_pod(
    record: WorkerRecord, status: WorkerStatus, reason: str, pod: Mapping[str, str]
) -> WorkerRecord:
    """The record of a worker that never speaks, after the watch saw the worker's pod.

    Another pod is another attempt. The end of a pod is final for this attempt.

    Args: pod: details of the report; POD_UID identifies the pod
    """
    is_same_pod = record.details.get(POD_UID) == pod.get(POD_UID)
    if is_same_pod and record.is_finished:
        return record
    attempt = record.attempt if is_same_pod else record.attempt + 1
    replacement = msgspec.structs.replace(
        record, attempt=attempt, status=status, reason=reason, details=dict(pod)
    )
    return record if replacement == record else replacement


def _with_new_process(
    record: WorkerRecord, message: ProcessMessage, may_speak: MaySpeak
) -> WorkerRecord:
    """Add the worker process that sent its first message. This process is now the one that runs.

    A process that may still speak is not past: its next message would add its counts again.
    """
    # An observation may have begun the attempt before the process sent its first message.
    is_begun = record.attempt > 0 and record.instance is None and not record.is_finished
    attempt = record.attempt if is_begun else record.attempt + 1
    past_counts = dict(record.past_counts)
    processes = dict(record.processes)
    if message.instance in processes:
        past_counts = _plus(past_counts, processes.pop(message.instance).counts)
    while len(processes) >= MAX_WORKER_PROCESSES:
        oldest = next((instance for instance in processes if not may_speak(instance)), None)
        if oldest is None:
            raise TooManyProcesses
        past_counts = _plus(past_counts, processes.pop(oldest).counts)
    processes[message.instance] = ProcessRecord(attempt, message.sequence, message.counts)
    instance = message.instance
    return msgspec.structs.replace(
        record, attempt=attempt, instance=instance, past_counts=past_counts, processes=processes
    )


def _disproves_end(record: WorkerRecord, message: ProcessMessage) -> bool:
    """Whether `message` shows that the process still runs, although a watch saw its end.

    A message without a heartbeat promise proves nothing: the process may have ended after it.
    """
    return bool(record.reason) and message.heartbeat_s > 0


def _revived(record: WorkerRecord, message: ProcessMessage) -> WorkerRecord:
    """Begin a new attempt, because the cloud never changes the final state of an attempt."""
    attempt = record.attempt + 1
    revived = msgspec.structs.replace(_with_counts(record, message, attempt), attempt=attempt)
    return _with_newest_facts(revived, message)


def _with_counts(record: WorkerRecord, message: ProcessMessage, attempt: int) -> WorkerRecord:
    process = ProcessRecord(attempt, message.sequence, message.counts)
    return msgspec.structs.replace(
        record, processes={**record.processes, message.instance: process}
    )


def _with_newest_facts(record: WorkerRecord, message: ProcessMessage) -> WorkerRecord:
    """With the facts of `message`, of the process that runs, but with the record's own counts."""
    count_names = record.count_names
    return msgspec.structs.replace(
        record,
        status=message.status,
        reason=message.reason,
        phase=message.phase,
        heartbeat_s=message.heartbeat_s,
        numbers={k: v for k, v in message.numbers.items() if k not in count_names},
        details=message.details,
    )


def _is_stale(process: ProcessRecord, message: ProcessMessage) -> bool:
    """Whether a newer message of the same process came earlier."""
    if process.sequence is None or message.sequence is None:
        return False
    return message.sequence <= process.sequence


def _is_unnamed_successor(record: WorkerRecord, message: ProcessMessage) -> bool:
    """Whether a worker that never names its processes has sent `message` from a new process.

    The process is new if the message comes after the end of the known process and says something
    else, or if the counts in the message are smaller than the known counts.
    """
    if message.instance:
        return False
    if record.is_finished and record.reason:
        return True
    if message.sequence is not None:  # a message that came late may have smaller counts, too
        return False
    # A worker that sends nothing but its end, as one that trains a round with Sedna's library, has
    # another end each time. The same one again is a repetition.
    # One that counts goes on as the same process: its totals grow, and would be added.
    details = {**message.details, UPDATE_TIME: record.details.get(UPDATE_TIME)}
    facts = (record.status, record.phase, record.numbers)
    is_same = facts == (message.status, message.phase, message.numbers) and details == {
        UPDATE_TIME: None,
        **record.details,
    }
    is_restarted = record.is_finished and not message.counts and not is_same
    counts = record.processes[message.instance].counts
    # Counts of one process only grow.
    return is_restarted or any(message.counts.get(name, n) < n for name, n in counts.items())


def _reported_facts(record: WorkerRecord, instance: str) -> tuple[object, ...]:
    """What the cloud gets a new report of. `instance`: the only process that may differ."""
    details = {name: text for name, text in record.details.items() if name != UPDATE_TIME}
    return (
        record.status,
        record.reason,
        record.phase,
        record.heartbeat_s,
        record.numbers,
        details,
        record.processes[instance].counts,
    )


def _plus(first: Counts, second: Counts) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in (*first, *second)}
