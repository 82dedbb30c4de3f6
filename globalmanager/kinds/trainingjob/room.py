"""How many workers an elastic job has: as many as the cluster has room for, within the limits.

Called by `replacement`, `scalers` and `main`. Nothing here watches nodes. The job always has a few
workers (`spec.elastic.maxQueued`) whose pods wait for room, and the scheduler of the cluster starts
them when there is room. A worker that loses its room leaves the job, and another one waits in its
place. Only workers that wait are ever taken back, so the job never gives up room that it has.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from common.times import rfc3339
from globalmanager.contract import Object, Observed
from globalmanager.kinds.trainingjob import present
from globalmanager.kinds.trainingjob.present import Present
from globalmanager.kinds.trainingjob.scaling import Size
from globalmanager.kinds.trainingjob.types import MAX_INDEX, TrainingJob
from globalmanager.rules import status
from globalmanager.rules.lifecycle import Timers, left_s
from globalmanager.rules.status import mapping
from globalmanager.rules.training import waiting
from globalmanager.rules.training.forms import MAX_REPLICAS

_MANY: Final = 1000
"""From this index on a job adds waiting workers slowly, so the indices last for months."""
_PAUSE_S: Final = 600.0
NO_INDEX: Final = f"no index up to {MAX_INDEX} is left; create the job anew"


class Room(NamedTuple):
    """The size of an elastic job."""

    size: Size
    fields: dict[str, Any]
    """.status.elastic."""
    timers: Timers = Timers()
    waiting: int = 0
    """So many workers wait for room."""


def of(
    job: Present, size: Size, *, lost: int, taken: Collection[str], spent: Collection[str]
) -> Room:
    """The size that follows from the room that the workers have now. A job whose limits are wrong
    keeps its number of workers.

    Args:
        size: the workers without those that are lost
        lost: how many workers are lost
        taken: workers that do not wait for room although their pod has none: the launcher uses
            them, they have ended for good, or a scaler takes care of them
        spent: the workers that have ended for good
    """
    spec, pods = job.spec, job.pods
    least, most = max(spec.min_replicas or 1, 1), limit(job.observed, spec)
    if _is_launcher_placed(job):
        # Before the launcher runs, workers that end for good fail the job, as without spec.elastic.
        least = max(least, min(most, least + len(spent)))
    waits = [
        name
        for name in size.target
        if name not in taken and not (name in pods and waiting.has_room(pods[name]))
    ]
    # Until the launcher has room itself, the job takes no more room than it needs to start.
    queued = spec.max_queued or 0 if _is_launcher_placed(job) else 0
    wanted = max(least, min(most, len(size.target) - len(waits) + queued))
    if spec.limits_fault is not None:
        least = wanted = len(size.target) + lost
    surplus = len(size.target) - wanted
    if surplus > 0:
        # The pods that pend go last: they are nearer to their room than workers without a pod.
        pending = [name for name in waits if name in pods and waiting.is_queued(pods[name])]
        others = [name for name in waits if name not in pending]
        changed, timers = size.without([*pending, *others][-surplus:]), Timers()
    else:
        pause_s = _pause_s(job, size)
        at_once = -surplus if pause_s <= 0 else max(least - len(size.target), 0)
        changed = size.with_new_workers(job.observed.ref.name, at_once)
        timers = Timers().add(pause_s if at_once < -surplus else None)
    fields = _fields(job, changed, known_before=size, waits=waits)
    if changed != size:
        fields["lastScaleTime"] = rfc3339(job.now)
    if surplus < 0 and changed.next_index > MAX_INDEX:
        fields |= {"reason": "NoIndexLeft", "message": NO_INDEX}
    return Room(changed, fields, timers, fields["waiting"])


def _is_launcher_placed(job: Present) -> bool:
    pod = present.launcher_pod(job.observed)
    return pod is not None and not present.is_worn(job, pod) and waiting.has_room(pod)


def _pause_s(job: Present, size: Size) -> float:
    """Seconds until the job may add a waiting worker."""
    since = _known(job.observed).get("lastScaleTime")
    left = left_s(since, _PAUSE_S, job.now, unknown=0.0)
    return min(left, _PAUSE_S) if size.next_index >= _MANY else 0.0  # clocks differ


def _fields(
    job: Present, size: Size, *, known_before: Size, waits: Sequence[str]
) -> dict[str, Any]:
    pods, known = job.pods, _known(job.observed)
    left = [name for name in waits if name in size.target]
    new = [name for name in size.target if name not in known_before.target]
    fields = {
        "ready": len(present.ready_workers(pods).intersection(size.target)),
        "waiting": len(left) + len(new),
        "limit": scaled_limit(job.observed, job.spec),
        **waiting.told([pods[name] for name in left if name in pods], known),
        "lastScaleTime": known.get("lastScaleTime"),
    }
    return {key: value for key, value in fields.items() if value is not None}


def at_rest(observed: Observed, pods: Mapping[str, Object]) -> dict[str, Any]:
    """The fields of .status of an elastic job that wants no workers any more. The limit stays.

    Args: pods: the workers' pods that are still there
    """
    known = _known(observed)
    kept = {key: known[key] for key in ("limit", "lastScaleTime") if key in known}
    ready = len(present.ready_workers(pods))
    return {"elastic": {"ready": ready, "waiting": 0, **kept}} if known else {}


def forgotten(observed: Observed) -> dict[str, Any]:
    """The fields of .status of a job that is not elastic, or not any more."""
    return {"elastic": None} if "elastic" in status.of(observed) else {}


def limit(observed: Observed, spec: TrainingJob) -> int:
    """The largest number of workers: maxReplicas, or what `kubectl scale` has set since, within the
    present limits.
    """
    most, scaled = spec.max_replicas or 1, scaled_limit(observed, spec)
    return most if scaled is None else max(spec.min_replicas or 1, min(most, scaled))


def scaled_limit(observed: Observed, spec: TrainingJob) -> int | None:
    """What `kubectl scale` has set, also while other limits exclude the number. None when it has
    set nothing, or maxReplicas.
    """
    told = _known(observed).get("limit")
    known = status.of(observed).get("observedReplicas")
    if type(known) is int and known != spec.replicas and accepts(spec, spec.replicas):
        return spec.replicas if spec.replicas != spec.max_replicas else None
    return told if type(told) is int and 0 < told <= MAX_REPLICAS else None


def accepts(spec: TrainingJob, replicas: int) -> bool:
    """Whether an elastic job can have this limit."""
    return (spec.min_replicas or 1) <= replicas <= (spec.max_replicas or 1)


def _known(observed: Observed) -> dict[str, Any]:
    return dict(mapping(status.of(observed).get("elastic")))


def is_queued(job: Present, pod: Object) -> bool:
    """Whether the pod of an elastic job waits for room without harm: enough workers run."""
    if job.spec.max_queued is None or not waiting.is_queued(pod):
        return False
    return len(present.ready_workers(job.pods)) >= (job.spec.min_replicas or 1)
