"""Workers that are lost or have failed, and the workers with a new index that replace them.

A new worker never has the name of an earlier one, because Horovod never uses a host again on which
a process has failed. In an elastic job the new worker may wait for room (`room`), and a worker that
the launcher never had is made again under its name: a node that takes no pods would use up the
indices.
"""

import math
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

from globalmanager.contract import Delete, Event, Object, Severity
from globalmanager.kinds.trainingjob import present, room
from globalmanager.kinds.trainingjob.present import Present, count_in
from globalmanager.kinds.trainingjob.scaling import Size
from globalmanager.rules import deletions, faults, lifecycle, pod_faults, pod_state
from globalmanager.rules.elastic.words import WORKER
from globalmanager.rules.faults import Fault
from globalmanager.rules.lifecycle import Timers, pause_left_s
from globalmanager.rules.objects import is_being_deleted
from globalmanager.rules.pod_state import phase_of
from globalmanager.rules.remedies import Cause
from globalmanager.rules.replication import index_of
from globalmanager.rules.status import mapping, mappings
from globalmanager.rules.training.forms import RestartPolicy
from globalmanager.rules.training.stalls import RESTARTED_S

_AT_ONCE: Final = 3
"""So many workers of a job are replaced without a pause."""
_MAX_AGE_S: Final = 60.0
"""A worker of this age is always replaced without a pause."""
_RETRYABLE_FROM: Final = 128  # exit codes of 128 + number say that a signal ended the process


class Replacement(NamedTuple):
    """What becomes of a job's size because of lost and failed workers."""

    size: Size
    fields: dict[str, Any]
    """The fields of .status."""
    events: tuple[Event, ...] = ()
    timers: Timers = Timers()
    spent: frozenset[str] = frozenset()
    """Wanted workers that have ended and that no other worker replaces."""
    missing: tuple[str, ...] = ()
    """Wanted workers of the list whose pod is not there, and that do not count as lost yet."""
    deletions: tuple[Delete, ...] = ()
    """The pods of workers that are made again under their names, at once or when the launcher has
    room."""
    paused: frozenset[str] = frozenset()
    """Wanted workers that have no pod until the launcher has room."""
    withheld: frozenset[str] = frozenset()
    """Workers that the list of hosts must not have yet."""


def of(
    job: Present, size: Size, listed: Collection[str], *, held: Collection[str] = ()
) -> Replacement:
    """The size after all replacements that are due.

    Args:
        listed: the hosts that the launcher has or had
        held: workers of which a scaler takes care
    """
    pods = job.pods
    replaced: list[tuple[str, str]] = []
    dropped: list[tuple[str, str]] = []
    spent: list[str] = []
    missing: list[str] = []
    again: list[str] = []
    timers, number = Timers(), count_in(job.observed, "replacedWorkers")
    for name in size.target:
        if name in held:
            continue
        pod = pods.get(name)
        loss = _loss(pod, job, is_listed=name in listed)
        if loss is None:
            wait_s = _wait_for_end_s(pod, job)
            missing += [name] if pod is None and name in listed else []
        elif not _is_replaced(job.spec.worker_policy, pod):
            wait_s = 0.0
            if pod is None or is_being_deleted(pod):
                dropped.append((name, loss))
            else:
                spent.append(name)
        else:
            wait_s = _backoff_s(pod, number + len(replaced) + len(again), job)
            is_new = pod is not None and name not in listed and not is_being_deleted(pod)
            if wait_s <= 0 and is_new and job.spec.max_queued is not None:
                again.append(name)
            elif wait_s <= 0:
                replaced.append((name, loss))
        timers = timers.add(wait_s)
    kept = size.without(name for name, _ in (*replaced, *dropped))
    if job.spec.max_queued is None:
        found = None
        new = kept.with_new_workers(job.observed.ref.name, len(replaced))
        why_none = room.NO_INDEX
        elastic = room.forgotten(job.observed)
    else:
        found = room.of(
            job, kept, lost=len(replaced), had=listed, spent=spent, held=held, again=again
        )
        new, timers = found.size, timers.add(*found.timers.waits_s)
        why_none = found.why_no_successor
        elastic = {"elastic": found.fields}
    successors = new.target[len(kept.target) :]
    events = [
        Event(Severity.WARNING, "WorkerReplaced", f"worker {name} {why}; {successor} replaces it")
        for (name, why), successor in zip(replaced, successors, strict=False)
    ]
    left = [(name, f"{why}; {why_none}") for name, why in replaced[len(successors) :]]
    left += [(name, f"{why}; its policy replaces none") for name, why in dropped]
    events += [Event(Severity.WARNING, "WorkerLost", f"worker {name} {why}") for name, why in left]
    paused = found.paused if found is not None else frozenset()
    events += found.events if found is not None else ()
    ending = {*again, *(name for name in paused if name in pods)}
    counted = len(successors) if job.spec.max_queued is None else len(replaced) + len(again)
    return Replacement(
        new,
        {"replacedWorkers": number + counted or None, **elastic},
        tuple(events),
        timers,
        frozenset(spent),
        tuple(missing),
        tuple(
            lifecycle.deletion(pods[name])
            for name in sorted(ending)
            if not is_being_deleted(pods[name])
        ),
        paused,
        found.withheld if found is not None else frozenset(),
    )


def _loss(pod: Object | None, job: Present, *, is_listed: bool) -> str | None:
    """What has happened to the worker; None while the worker is or becomes usable.

    A pod that the launcher never saw can be made again under its name, so such a pod is not lost
    when it is missing.
    """
    if pod is None:
        is_late = present.missing_left_s(job, present.WORKERS_MISSING) <= 0
        return "is gone" if is_listed and is_late else None
    if is_being_deleted(pod):
        is_late = _wait_for_end_s(pod, job) <= 0
        return "is being deleted" if is_listed or is_late else None
    if phase_of(pod) not in ("Failed", "Succeeded"):
        return None
    fault = pod_faults.first_fault([pod])
    detail = f": {fault.message}" if fault is not None else ""
    return f"has ended{detail}"


def _wait_for_end_s(pod: Object | None, job: Present) -> float:
    """Seconds until a pod that is being deleted counts as lost: its node does not answer."""
    if pod is None or not is_being_deleted(pod):
        return 0.0
    return deletions.overdue_in_s(pod, job.now)


def _is_replaced(policy: RestartPolicy, pod: Object | None) -> bool:
    """Whether another worker replaces a lost or ended one."""
    if policy is RestartPolicy.NEVER:
        return False
    if pod is None or is_being_deleted(pod) or policy is RestartPolicy.ALWAYS:
        return True
    if phase_of(pod) == "Succeeded":
        return False
    return policy is RestartPolicy.ON_FAILURE or _is_retryable(pod)


def _is_retryable(pod: Object) -> bool:
    """Whether something other than its own program ended a failed worker: the node or the cluster,
    or a signal.
    """
    state = mapping(pod.get("status"))
    if state.get("reason") == pod_state.OWN_DEADLINE:
        return False
    name = pod["spec"]["containers"][0].get("name")
    codes = (
        mapping(mapping(container.get("state")).get("terminated")).get("exitCode")
        for container in mappings(state.get("containerStatuses"))
        if container.get("name") == name
    )
    code = next(codes, None)
    is_signal = not isinstance(code, int) or code >= _RETRYABLE_FROM
    return is_signal or pod_state.is_disrupted(pod)


def _backoff_s(pod: Object | None, replaced: int, job: Present) -> float:
    """Seconds until the worker is replaced. A worker that ends soon after its start again and again
    is replaced ever more slowly.

    Args: replaced: how many workers of the job were replaced before
    """
    if pod is None or replaced < _AT_ONCE:
        return 0.0
    age_s = min(_MAX_AGE_S, 2.0 ** min(replaced, 32))
    return pause_left_s(pod["metadata"].get("creationTimestamp"), age_s, job.now)


# ---- the last failure ---------------------------------------------------------------------------


def last_failure(
    job: Present, target: Collection[str], present_faults: Sequence[Fault]
) -> tuple[tuple[Fault, ...], float]:
    """The last failure of workers that fail one after the other, until their successors have run
    for RESTARTED_S, and the seconds until then. Failed pods are soon deleted, and then only the
    condition Stalled still names them.

    Args:
        target: the workers that have or get a pod
        present_faults: of the pods that the job wants. A crash among them is later than the others
    """
    is_later = any(
        fault.cause is Cause.CRASH and _index(job, fault) is not None for fault in present_faults
    )
    if is_later or count_in(job.observed, "replacedWorkers") < 2:
        return (), math.inf
    pods = [pod for name, pod in job.pods.items() if name not in target and _has_crashed(pod)]
    stall = faults.faults_in(job.conditions.last_stall)
    for fault in (*pod_faults.examine(pods).faults, *stall):
        index = _index(job, fault)
        if fault.cause is Cause.CRASH and index is not None:
            wait_s = _until_recovered_s(job, target, index)
            return ((fault,), wait_s) if wait_s > 0 else ((), math.inf)
    return (), math.inf


def _index(job: Present, fault: Fault) -> int | None:
    """The index of the worker that has the fault."""
    return index_of(job.observed.ref.name, WORKER, fault.worker)


def _has_crashed(pod: Object) -> bool:
    return phase_of(pod) == "Failed" and not pod_state.is_disrupted(pod)


def _until_recovered_s(job: Present, target: Collection[str], index: int) -> float:
    """Seconds until all workers from this index on have run for RESTARTED_S; infinite while one of
    them has no pod.
    """
    waits_s = [0.0]
    for name in target:
        if (index_of(job.observed.ref.name, WORKER, name) or 0) >= index:
            pod = job.pods.get(name)
            since = pod["metadata"].get("creationTimestamp") if pod is not None else None
            is_absent = pod is None or is_being_deleted(pod)
            waits_s.append(math.inf if is_absent else pause_left_s(since, RESTARTED_S, job.now))
    return max(waits_s)
