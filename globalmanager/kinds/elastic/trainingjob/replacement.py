"""What a plan does about lost and failed workers: workers with a new index replace them.

A new worker never has the name of an earlier one, because Horovod never uses a host again on which
a process has failed. In an elastic job the new worker may wait for room (`room`), and a worker that
the launcher never had keeps its name: a node that takes no pods would use up the indices.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from globalmanager.contract import Delete, Event, Severity
from globalmanager.kinds.elastic.trainingjob import room
from globalmanager.kinds.elastic.trainingjob.snapshot import ElasticSnapshot, count_in
from globalmanager.kinds.elastic.trainingjob.table import Table, Worker, WorkerState
from globalmanager.kinds.shared import lifecycle
from globalmanager.kinds.shared.lifecycle import Timers
from globalmanager.kinds.shared.queued_pods import forgotten


class Replacement(NamedTuple):
    """The table after all replacements that are due."""

    table: Table
    fields: dict[str, Any]
    """The fields of .status."""
    events: tuple[Event, ...] = ()
    timers: Timers = Timers()
    deletions: tuple[Delete, ...] = ()
    """Pods of workers that come again under their names, now or when the launcher has room."""


def replace(job: ElasticSnapshot, table: Table) -> Replacement:
    """The table with successors of lost workers; of an elastic job, as many as have room."""
    lost_workers = table.bucket(WorkerState.LOST)
    dismissed = table.bucket(WorkerState.GONE)
    retryable = table.bucket(WorkerState.RETRYABLE)
    rest = table.without(worker.name for worker in (*lost_workers, *dismissed))
    timers = Timers().add(*(worker.wait_s for worker in table.workers.values()))
    is_elastic = job.spec.is_elastic
    if is_elastic:
        size = room.resize(job, rest, len(lost_workers))
    else:
        new = rest.with_new_workers(job, len(lost_workers))
        size = room.Sizing(new, forgotten(job.observed), room.NO_INDEX)
    # New workers always come behind those that stay.
    successors = size.table.target[len(rest.workers) :]
    # A worker without a free index for a successor is not replaced, but counts for the pauses.
    count = len(lost_workers) + len(retryable) if is_elastic else len(successors)
    count += count_in(job.observed, "replacedWorkers")
    events = _events(lost_workers, dismissed, successors, size.why_no_successor)
    # A failed pod keeps the worker's name, and a paused one's the room that the launcher needs.
    paused_workers = size.table.bucket(WorkerState.PAUSED)
    return Replacement(
        size.table,
        {"replacedWorkers": count or None, **size.fields},
        (*events, *size.events),
        timers.add(*size.timers.waits_s),
        tuple(_deletions((*retryable, *paused_workers))),
    )


def _events(
    lost_workers: Sequence[Worker],
    dismissed: Sequence[Worker],
    successors: Sequence[str],
    why_none: str,
) -> Iterator[Event]:
    for worker, successor in zip(lost_workers, successors, strict=False):
        message = f"worker {worker.name} {worker.loss}; {successor} replaces it"
        yield Event(Severity.WARNING, "WorkerReplaced", message)
    reasons = [(worker, why_none) for worker in lost_workers[len(successors) :]]
    reasons += [(worker, "its policy replaces none") for worker in dismissed]
    for worker, reason in reasons:
        message = f"worker {worker.name} {worker.loss}; {reason}"
        yield Event(Severity.WARNING, "WorkerLost", message)


def _deletions(workers: Sequence[Worker]) -> Iterator[Delete]:
    pods = {worker.name: worker.pod for worker in workers if not worker.is_being_deleted}
    for name in sorted(pods):
        pod = pods[name]
        if pod is not None:
            yield lifecycle.deletion(pod)
