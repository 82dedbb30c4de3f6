"""The table of a TrainingJob's workers: each wanted worker once, with one state.

`observe` reads the states from the pods, the launcher's list of hosts and the current scaler. The
rules of a plan follow one after the other (`replacement`, `room`, `scalers`). Each takes a table
and returns one in which workers changed. The last one says which pods and hosts the job gets.

`.status.targetWorkers` holds the names. The plan writes the list before it makes or deletes a pod,
so a restarted GlobalManager goes on with the same workers.
"""

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from edgeai.api import deletions, pod_state
from edgeai.api.elastic import WORKER
from edgeai.api.objects import is_being_deleted
from edgeai.api.pod_state import phase_of
from edgeai.api.resources import Object
from edgeai.api.status import mapping, mappings
from edgeai.api.training import MAX_REPLICAS, RestartPolicy
from edgeai.faults import pod_faults
from globalmanager.contract import Observed
from globalmanager.kinds.elastic.trainingjob import snapshot, workers
from globalmanager.kinds.elastic.trainingjob.snapshot import ElasticSnapshot, count_in
from globalmanager.kinds.elastic.trainingjob.spec import MAX_INDEX, TrainingJob
from globalmanager.kinds.shared import status
from globalmanager.kinds.shared.lifecycle import pause_left_s
from globalmanager.kinds.shared.queued_pods import has_room
from globalmanager.kinds.shared.replication import index_of, replica_name

_AT_ONCE: Final = 3
"""Number of workers of a job that are replaced without a pause."""
_MAX_AGE_S: Final = 60.0
"""A worker of this age is always replaced without a pause."""
_RETRYABLE_FROM: Final = 128  # exit codes of 128 + number say that a signal ended the process


class WorkerState(enum.Enum):
    """What a wanted worker is to the job in one plan."""

    PLACED = enum.auto()
    """It has room, or the launcher had it: then its loss is not sure yet, or waits for a pause."""
    WAITING = enum.auto()
    """The launcher never had it, and it has no room: its pod pends, ends or does not exist."""
    MISSING = enum.auto()
    """The launcher had it, and its pod is not there; not lost yet: the watch may be late."""
    LOST = enum.auto()
    """Its pod is gone or has failed, and another worker replaces it now."""
    GONE = enum.auto()
    """Its pod is gone, and by the policy of the job no other worker replaces it."""
    TERMINAL = enum.auto()
    """Its pod has ended, and by the policy of the job no other worker replaces it."""
    RETRYABLE = enum.auto()
    """Its pod failed before the launcher had it, so it gets a new pod under the same name."""
    RESERVED = enum.auto()
    """The current scaler adds or removes it, so no other rule replaces it or gives up its room."""
    PAUSED = enum.auto()
    """It has no pod until the launcher has room."""
    HIDDEN = enum.auto()
    """The list of hosts must not have it yet."""
    DRAINING = enum.auto()
    """The list of hosts must not have it any more: the current scaler removes it."""


class Worker(NamedTuple):
    """One row of the table."""

    name: str
    pod: Object | None = None
    state: WorkerState = WorkerState.WAITING
    is_ready: bool = False
    """Whether the launcher can start processes on the worker."""
    was_listed: bool = False
    """Whether the launcher has or had the worker in its list of hosts."""
    loss: str = ""
    """What has happened to a worker that is LOST or GONE: "has ended: …"."""
    wait_s: float = 0.0
    """Seconds until the state changes by time alone; 0 for none."""

    @property
    def is_being_deleted(self) -> bool:
        return self.pod is not None and is_being_deleted(self.pod)

    @property
    def is_host(self) -> bool:
        """Whether the list of hosts keeps the worker if the list has it."""
        return self.state not in (WorkerState.TERMINAL, WorkerState.DRAINING)

    @property
    def is_new_host(self) -> bool:
        return self.is_ready and self.state not in (WorkerState.PAUSED, WorkerState.HIDDEN)

    @property
    def needs_pod(self) -> bool:
        """A worker that the launcher had gets no second pod: Horovod would not use it again."""
        has_none = self.pod is None and not self.was_listed
        return has_none and self.state not in (WorkerState.PAUSED, WorkerState.DRAINING)


class Table(NamedTuple):
    """The workers that the job wants."""

    workers: Mapping[str, Worker]
    """Name of the pod -> worker, in the order of their index."""
    next_index: int
    """The index of the next new worker."""

    @property
    def target(self) -> tuple[str, ...]:
        """The names of the pods."""
        return tuple(self.workers)

    def bucket(self, *states: WorkerState) -> list[Worker]:
        """The workers in one of these states, in the order of their index."""
        return [worker for worker in self.workers.values() if worker.state in states]

    def with_new_workers(
        self, job: ElasticSnapshot, number: int, state: WorkerState = WorkerState.WAITING
    ) -> "Table":
        """With further workers, as far as there are free indices. Where the status is old, a worker
        may have a pod already.
        """
        # Indices only grow: Horovod never uses a host again on which a process has failed.
        end = min(self.next_index + number, MAX_INDEX + 1)
        names = _names(job.observed, range(self.next_index, end))
        rows = (_row(job, name, state) for name in names)
        return Table({**self.workers, **{row.name: row for row in rows}}, end)

    def without(self, names: Iterable[str]) -> "Table":
        departures = frozenset(names)
        rest = {name: row for name, row in self.workers.items() if name not in departures}
        return self._replace(workers=rest)

    def changed(self, names: Iterable[str], state: WorkerState) -> "Table":
        """With this state for those of the workers that the table has."""
        rows = (self.workers[name] for name in names if name in self.workers)
        new = {row.name: row._replace(state=state) for row in rows}
        return self._replace(workers={**self.workers, **new})

    def enough(self, spec: TrainingJob) -> int:
        """Workers that must be ready before the launcher starts; 1 also without any index."""
        number = max(len(self.workers), 1)
        if spec.min_replicas is None:
            return number
        # An elastic job always has minReplicas workers, as long as there are indices.
        is_elastic = spec.is_elastic and spec.limits_fault is None
        return spec.min_replicas if is_elastic else min(spec.min_replicas, number)


def recorded(observed: Observed, spec: TrainingJob) -> Table:
    """The workers of the status, and at the start those of the spec. All are WAITING."""
    names = status.status_of(observed).get("targetWorkers")
    job = observed.ref.name
    if not isinstance(names, list):
        at_start = 0 if spec.is_elastic else spec.replicas  # `room` adds the first ones
        return Table({name: Worker(name) for name in _names(observed, range(at_start))}, at_start)
    indices = {index_of(job, WORKER, name) for name in names if isinstance(name, str)}
    # Anybody may write a status, and a plan must not make more workers than a job can have.
    valid_indices = sorted(index for index in indices if index is not None)[:MAX_REPLICAS]
    next_index = status.status_of(observed).get("nextWorkerIndex")
    least = valid_indices[-1] + 1 if valid_indices else 0
    if type(next_index) is not int or not least <= next_index <= MAX_INDEX + 1:
        # The et-operator writes no such number. A pod keeps its index as long as it is there.
        there = (index_of(job, WORKER, name) or 0 for name in workers.present(observed))
        next_index = min(max([least, *(index + 1 for index in there)]), MAX_INDEX + 1)
    return Table({name: Worker(name) for name in _names(observed, valid_indices)}, next_index)


def _names(observed: Observed, indices: Iterable[int]) -> Iterator[str]:
    return (replica_name(observed.ref.name, WORKER, index) for index in indices)


def observe(job: ElasticSnapshot, hosts: Collection[str], reserved: Collection[str]) -> Table:
    """The table at the beginning of a plan.

    Args:
        hosts: the hosts that the launcher has or had
        reserved: the workers that the current scaler adds or removes
    """
    table = recorded(job.observed, job.spec)
    return table._replace(
        workers={row.name: row for row in _rows(job, table.target, hosts, reserved)}
    )


def _rows(
    job: ElasticSnapshot, names: Iterable[str], hosts: Collection[str], reserved: Collection[str]
) -> Iterator[Worker]:
    losses = count_in(job.observed, "replacedWorkers")
    for name in names:
        row = _row(job, name, WorkerState.RESERVED, was_listed=name in hosts)
        if name not in reserved:  # no scaler adds or removes the worker
            row = _lost(job, row, losses) or _usable(job, row)
        # The pause before the next replacement grows with each one, also within one plan.
        losses += row.state in (WorkerState.LOST, WorkerState.RETRYABLE)
        yield row


def _row(
    job: ElasticSnapshot, name: str, state: WorkerState, *, was_listed: bool = False
) -> Worker:
    pod = job.pods.get(name)
    is_ready = pod is not None and snapshot.is_ready(pod)
    return Worker(name, pod, state, is_ready, was_listed)


def _lost(job: ElasticSnapshot, row: Worker, losses: int) -> Worker | None:
    """The row of a worker that is gone or has ended; None while the worker is or becomes usable.

    Args: losses: how many workers of the job were replaced before
    """
    loss, pod = _loss(job, row), row.pod
    if not loss:
        return None
    # An ended pod stays, because its log tells why. It keeps its place, so nobody replaces it.
    if not _is_replaced(job.spec.worker_policy, pod):
        has_ended = pod is not None and not is_being_deleted(pod)
        return row._replace(
            state=WorkerState.TERMINAL if has_ended else WorkerState.GONE, loss=loss
        )
    # In the pause the worker is what it was: the launcher keeps it, or it still waits for room.
    wait_s = _backoff_s(pod, losses, job)
    if wait_s > 0:
        return _usable(job, row)._replace(wait_s=wait_s)
    # In an elastic job a node that takes no pods would use up the indices.
    is_retryable = job.spec.is_elastic and not row.was_listed
    is_retryable = is_retryable and pod is not None and not is_being_deleted(pod)
    return row._replace(
        state=WorkerState.RETRYABLE if is_retryable else WorkerState.LOST, loss=loss
    )


def _usable(job: ElasticSnapshot, row: Worker) -> Worker:
    """The row of a worker that is or becomes usable."""
    wait_s = _wait_for_end_s(row.pod, job)
    # Horovod holds on to a host that it knows, so the room of such a worker is never given up.
    if row.was_listed:
        state = WorkerState.MISSING if row.pod is None else WorkerState.PLACED
    else:
        is_placed = row.pod is not None and has_room(row.pod)
        state = WorkerState.PLACED if is_placed else WorkerState.WAITING
    return row._replace(state=state, wait_s=wait_s)


def _loss(job: ElasticSnapshot, row: Worker) -> str:
    """What has happened to the worker; "" while the worker is or becomes usable.

    A missing pod that the launcher never saw is not lost: it is made again under its name.
    """
    if row.pod is None:
        is_late = snapshot.missing_left_s(job, snapshot.WORKERS_MISSING) <= 0
        return "is gone" if row.was_listed and is_late else ""
    # A launcher loses a worker as soon as its end begins. Others wait for the name to be free.
    if is_being_deleted(row.pod):
        is_late = _wait_for_end_s(row.pod, job) <= 0
        return "is being deleted" if row.was_listed or is_late else ""
    if phase_of(row.pod) not in ("Failed", "Succeeded"):
        return ""
    fault = pod_faults.first_fault([row.pod])
    detail = f": {fault.message}" if fault is not None else ""
    return f"has ended{detail}"


def _wait_for_end_s(pod: Object | None, job: ElasticSnapshot) -> float:
    """Seconds until a pod that is being deleted counts as lost: its node does not answer."""
    if pod is None or not is_being_deleted(pod):
        return 0.0
    return deletions.overdue_in_s(pod, job.now)


def _is_replaced(policy: RestartPolicy, pod: Object | None) -> bool:
    """Whether another worker replaces a lost or ended one."""
    if policy is RestartPolicy.NEVER:
        return False
    # Nobody knows how a pod has ended that is gone: the cluster took it, not its own program.
    if pod is None or is_being_deleted(pod) or policy is RestartPolicy.ALWAYS:
        return True
    if phase_of(pod) == "Succeeded":
        return False
    return policy is RestartPolicy.ON_FAILURE or _is_retryable(pod)


def _is_retryable(pod: Object) -> bool:
    """Whether the node, the cluster or a signal ended a failed worker, not its own program."""
    state = mapping(pod.get("status"))
    # The deadline stands in the template of the user, so the next worker would meet it, too.
    if state.get("reason") == pod_state.OWN_DEADLINE:
        return False
    # The launcher starts its processes in the first container, so a sidecar decides nothing.
    name = pod["spec"]["containers"][0].get("name")
    codes = (
        mapping(mapping(container.get("state")).get("terminated")).get("exitCode")
        for container in mappings(state.get("containerStatuses"))
        if container.get("name") == name
    )
    code = next(codes, None)
    is_signal = not isinstance(code, int) or code >= _RETRYABLE_FROM
    return is_signal or pod_state.is_disrupted(pod)


def _backoff_s(pod: Object | None, losses: int, job: ElasticSnapshot) -> float:
    """Seconds until the worker is replaced, ever more slowly if it ends soon again and again.

    Args: losses: how many workers of the job were replaced before
    """
    if pod is None or losses < _AT_ONCE:
        return 0.0
    # The count stands in a status and may be a million, which is too large an exponent.
    age_s = min(_MAX_AGE_S, 2.0 ** min(losses, 32))
    return pause_left_s(pod["metadata"].get("creationTimestamp"), age_s, job.now)
