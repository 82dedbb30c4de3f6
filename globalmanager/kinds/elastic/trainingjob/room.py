"""How many workers an elastic job has: as many as the cluster has room for, within the limits.

Nothing here watches nodes. The job always has a few workers (`spec.elastic.maxQueued`) whose pods
wait for room, and the scheduler of the cluster starts them when there is room. A worker that loses
its room leaves the job, and another waits in its place. Room for the launcher comes first.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from edgeai.api import pod_state
from edgeai.api.resources import Object
from edgeai.api.status import mapping
from edgeai.api.training import MAX_REPLICAS
from edgeai.faults import pod_faults
from edgeai.times import rfc3339
from globalmanager.contract import Event, Observed, Severity
from globalmanager.kinds.elastic.trainingjob import snapshot
from globalmanager.kinds.elastic.trainingjob.snapshot import ElasticSnapshot
from globalmanager.kinds.elastic.trainingjob.spec import MAX_INDEX, TrainingJob
from globalmanager.kinds.elastic.trainingjob.table import Table, Worker, WorkerState
from globalmanager.kinds.shared import status
from globalmanager.kinds.shared.lifecycle import Timers, pause_left_s
from globalmanager.kinds.shared.queued_pods import has_room, is_queued, waiting_reason

_MANY: Final = 1000
"""From this index on a job adds waiting workers slowly, so the indices last for months."""
_PAUSE_S: Final = 600.0
_GRACE_S: Final = 30
"""The grace period of pods that name none."""
_SCHEDULING_S: Final = 15
"""The scheduler looks again at a pod after 10 seconds at most when another pod has ended."""
_LAUNCHER_FIRST: Final = "the launcher gets room first"
NO_INDEX: Final = f"no index up to {MAX_INDEX} is left; create the job anew"


class Sizing(NamedTuple):
    """The table of an elastic job with as many workers as there is room for."""

    table: Table
    fields: dict[str, Any]
    """.status.elastic."""
    why_no_successor: str
    """Why no other worker takes the place of a lost one at once."""
    timers: Timers = Timers()
    events: tuple[Event, ...] = ()


class _LauncherFirst(NamedTuple):
    """What the workers leave to a launcher that has no room."""

    table: Table
    taken_back: str = ""
    """The worker that gives its room to the launcher now; "" for none."""
    wait_s: float = math.inf
    """Seconds until the next worker gives its room to the launcher."""


def resize(job: ElasticSnapshot, table: Table, lost_count: int) -> Sizing:
    """The size that follows from the room of the workers. With wrong limits it stays as it is.

    1. `_least` is the number that the launcher needs, `_number` the one for which there is room.
    2. `_resized` adds workers, or takes waiting ones away, to reach this number.
    3. While the launcher has no room, `_launcher_first` pauses the workers that it does not need.

    Args:
        table: the workers without those that are lost
        lost_count: how many workers are lost
    """
    # The pods that pend come first: they are nearer to their room than workers without a pod.
    queue = table.bucket(WorkerState.WAITING, WorkerState.RETRYABLE)
    queue.sort(key=lambda worker: worker.pod is None or not is_queued(worker.pod))
    launcher = snapshot.launcher_pod(job.observed)
    is_placed = launcher is not None and not snapshot.is_worn(job, launcher) and has_room(launcher)
    least = _least(job, len(table.bucket(WorkerState.TERMINAL)), is_placed=is_placed)
    number = max(least, _number(job, len(table.workers), queue, is_placed=is_placed))
    # Wrong limits say nothing about the size: each lost worker gets a successor, and no one else.
    if job.spec.limits_fault is not None:
        least = number = len(table.workers) + lost_count
    resized, wait_s, has_no_index = _resized(job, table, queue, least, number)
    first = _LauncherFirst(resized)
    if not is_placed:
        first = _launcher_first(job, least, table, resized, [worker.name for worker in queue])
    fields = _fields(job, first.table, before=table, queue=queue)
    # The time of the last change spaces out the next ones. What the launcher takes back counts.
    if first.table.target != table.target or first.taken_back:
        fields["lastScaleTime"] = rfc3339(job.now)
    # The scheduler's own words about a waiting pod say more than ours.
    if has_no_index:
        fields |= {"reason": "NoIndexLeft", "message": NO_INDEX}
    elif first.table.bucket(WorkerState.PAUSED) and "reason" not in fields:
        fields |= {"reason": "LauncherPending", "message": f"{job.text}: {_LAUNCHER_FIRST}"}
    why_none = _why_no_successor(fields["waiting"], has_no_index=has_no_index, is_placed=is_placed)
    timers = Timers().add(wait_s, first.wait_s)
    return Sizing(first.table, {"elastic": fields}, why_none, timers, _taken_back(first.taken_back))


def _resized(
    job: ElasticSnapshot, table: Table, queue: Sequence[Worker], least: int, number: int
) -> tuple[Table, float, bool]:
    """(table with this number of workers, seconds until more come, whether an index was missing)"""
    shortage = number - len(table.workers)
    if shortage < 0:
        # Those at the end of the queue are the farthest from their room.
        return table.without(worker.name for worker in queue[shortage:]), 0.0, False
    pause_s = _pause_s(job, table)
    # Workers that the launcher needs for its start come without a pause.
    at_once = shortage if pause_s <= 0 else max(least - len(table.workers), 0)
    resized = table.with_new_workers(job, at_once)
    has_no_index = len(resized.workers) - len(table.workers) < at_once
    return resized, pause_s if at_once < shortage else 0.0, has_no_index


def _is_stuck(worker: Worker) -> bool:
    """Whether the pod of a worker that waits has a node, which does not start the pod."""
    has_node = worker.pod is not None and bool(pod_state.node_of(worker.pod))
    is_kept = worker.state is WorkerState.WAITING and not worker.is_being_deleted
    return has_node and is_kept


def _least(job: ElasticSnapshot, terminal_count: int, *, is_placed: bool) -> int:
    """Least number of workers. Args: terminal_count: those that have ended for good"""
    least = max(job.spec.min_replicas or 1, 1)
    if not is_placed:
        # Before the launcher runs, workers that end for good fail the job, as without spec.elastic.
        return least
    return max(least, min(limit(job.observed, job.spec), least + terminal_count))


def _number(job: ElasticSnapshot, number: int, queue: Sequence[Worker], *, is_placed: bool) -> int:
    """The number of workers within the limit that follows from the room.

    The queue has maxQueued places: so many workers wait beside those that have room. Workers whose
    node does not start them leave their place to others, at most as many as the queue has places.
    When their nodes start them after all, nobody is taken back. So the number changes only when
    fewer workers wait than the first number below, or more than two queues.

    Args:
        number: how many workers the job has
        queue: those of them that wait for room
    """
    places = job.spec.max_queued or 0
    least = number - len(queue) + places + min(sum(map(_is_stuck, queue)), places)
    most = number - len(queue) + 2 * places
    fitting = number if least <= number <= most else least
    # Until the launcher has room itself, no further worker waits.
    return min(limit(job.observed, job.spec), fitting if is_placed else min(fitting, number))


def _launcher_first(
    job: ElasticSnapshot, least: int, before: Table, table: Table, queue: Sequence[str]
) -> _LauncherFirst:
    """A launcher gets room before the workers above minReplicas. The scheduler of the cluster may
    have given its room to a worker that waited. So the workers give room back, one after the other.

    Args:
        least: number of workers that the launcher needs
        before: the workers before new ones came, or waiting ones went
        queue: the workers that wait for room
    """
    # A worker that the launcher had and whose pod is not there yet counts: its room is not free.
    usable = before.bucket(WorkerState.PLACED, WorkerState.MISSING)
    extra = len(usable) - least
    queue_names = [name for name in queue if name in table.workers]
    # Only as many wait as the launcher needs. The others would take the room that it waits for.
    table = table.changed(queue_names[max(-extra, 0) :], WorkerState.PAUSED)
    if extra <= 0:
        return _LauncherFirst(table)
    # Those beyond its need are not listed: a launcher must not lose a host at its start.
    new = [worker for worker in usable if not worker.was_listed]
    table = table.changed((worker.name for worker in new[-extra:]), WorkerState.HIDDEN)
    wait_s = _left_until_taken_back_s(job)
    if wait_s > 0:
        return _LauncherFirst(table, wait_s=wait_s)
    last = (new or usable)[-1]
    # No launcher ever used a new worker, so it keeps its name.
    table = table.changed([last.name], WorkerState.PAUSED) if new else table.without([last.name])
    return _LauncherFirst(table, last.name)


def _left_until_taken_back_s(job: ElasticSnapshot) -> float:
    """Seconds until the launcher gets the room of a worker; infinite when the launcher does not
    wait for room. The pod of the last worker must have ended, and the scheduler needs some time.
    """
    pod = snapshot.launcher_pod(job.observed)
    fault = pod_faults.first_fault([pod]) if pod is not None and is_queued(pod) else None
    # The room of a worker cures no other fault of the launcher.
    if fault is None or fault.reason != "Unschedulable":
        return math.inf
    grace = job.spec.worker["spec"].get("terminationGracePeriodSeconds")
    pause_s = (grace if type(grace) is int else _GRACE_S) + _SCHEDULING_S
    return pause_left_s(_elastic_status(job.observed).get("lastScaleTime"), pause_s, job.now)


def _taken_back(name: str) -> tuple[Event, ...]:
    message = f"worker {name} gives its room to the launcher, which has none"
    return (Event(Severity.WARNING, "WorkerTakenBack", message),) if name else ()


def _why_no_successor(queue_length: int, *, has_no_index: bool, is_placed: bool) -> str:
    if queue_length:
        return "another worker waits for room"
    if has_no_index:
        return NO_INDEX
    return "the job has as many workers as its limit allows" if is_placed else _LAUNCHER_FIRST


def _pause_s(job: ElasticSnapshot, table: Table) -> float:
    """Seconds until the job may add a waiting worker."""
    since = _elastic_status(job.observed).get("lastScaleTime")
    return pause_left_s(since, _PAUSE_S, job.now) if table.next_index >= _MANY else 0.0


def _fields(
    job: ElasticSnapshot, table: Table, *, before: Table, queue: Sequence[Worker]
) -> dict[str, Any]:
    recorded = _elastic_status(job.observed)
    queued = [worker for worker in queue if worker.name in table.workers]
    new = table.workers.keys() - before.workers.keys()
    fields = {
        "ready": sum(worker.is_ready for worker in table.workers.values()),
        "waiting": len(queued) + len(new),
        "limit": scaled_limit(job.observed, job.spec),
        **waiting_reason([worker.pod for worker in queued if worker.pod is not None], recorded),
        "lastScaleTime": recorded.get("lastScaleTime"),
    }
    return {key: value for key, value in fields.items() if value is not None}


def at_rest(observed: Observed, pods: Mapping[str, Object]) -> dict[str, Any]:
    """The fields of .status of an elastic job that wants no workers any more. The limit stays.

    Args: pods: the workers' pods that are still there
    """
    recorded = _elastic_status(observed)
    # The limit is the user's word and holds again when the job is resumed.
    limits = {key: recorded[key] for key in ("limit", "lastScaleTime") if key in recorded}
    ready = len(snapshot.ready_workers(pods))
    return {"elastic": {"ready": ready, "waiting": 0, **limits}} if recorded else {}


def limit(observed: Observed, spec: TrainingJob) -> int:
    """The most workers: maxReplicas, or what `kubectl scale` has set within the present limits."""
    most, scaled = spec.max_replicas or 1, scaled_limit(observed, spec)
    return most if scaled is None else max(spec.min_replicas or 1, min(most, scaled))


def scaled_limit(observed: Observed, spec: TrainingJob) -> int | None:
    """What `kubectl scale` has set, also beyond the limits; None for nothing, or maxReplicas."""
    recorded = _elastic_status(observed).get("limit")
    observed_replicas = status.status_of(observed).get("observedReplicas")
    if (
        # An edit of `replicas` counts at once, before the status has it.
        type(observed_replicas) is int
        and observed_replicas != spec.replicas
        and accepts(spec, spec.replicas)
    ):
        return spec.replicas if spec.replicas != spec.max_replicas else None
    return recorded if type(recorded) is int and 0 < recorded <= MAX_REPLICAS else None


def accepts(spec: TrainingJob, replicas: int) -> bool:
    """Whether an elastic job can have this limit."""
    return (spec.min_replicas or 1) <= replicas <= (spec.max_replicas or 1)


def _elastic_status(observed: Observed) -> dict[str, Any]:
    return dict(mapping(status.status_of(observed).get("elastic")))


def waits_in_queue(job: ElasticSnapshot, pod: Object) -> bool:
    """Whether the pod of an elastic job waits for room without harm: enough workers run."""
    if not job.spec.is_elastic or not is_queued(pod):
        return False
    # Below minReplicas a pod without room does keep the job from training.
    return len(snapshot.ready_workers(job.pods)) >= (job.spec.min_replicas or 1)
