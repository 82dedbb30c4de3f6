"""Why a TrainingJob does not get on: the condition Stalled."""

import math
from collections.abc import Collection, Sequence
from typing import Final

from edgeai.api import pod_state
from edgeai.api.elastic import WORKER
from edgeai.api.objects import is_being_deleted
from edgeai.api.pod_state import phase_of
from edgeai.api.resources import Object
from edgeai.faults import faults, pod_faults
from edgeai.faults.faults import Fault, job_fault
from edgeai.faults.remedies import Cause
from globalmanager.kinds.elastic.trainingjob import invalid, phases, room, snapshot
from globalmanager.kinds.elastic.trainingjob import workers as pods_of_workers
from globalmanager.kinds.elastic.trainingjob.snapshot import ElasticSnapshot, count_in
from globalmanager.kinds.elastic.trainingjob.table import Table, WorkerState
from globalmanager.kinds.shared.job_faults import (
    RESTARTED_S,
    is_first_failure,
    refusal_fault,
    size_fault,
)
from globalmanager.kinds.shared.lifecycle import Timers, pause_left_s
from globalmanager.kinds.shared.replication import index_of

TOO_FEW_WORKERS: Final = "TooFewWorkers"
"""Reason of the condition Stalled of an elastic job that cannot have minReplicas workers."""
_SCALE_IN_FAILED: Final = "ScaleInFailed"
"""Reason of the condition Stalled while an elastic job is above its limit."""
_MAX_NAMED: Final = 3  # workers in one message


def stall(job: ElasticSnapshot, table: Table, scale_in_problem: str) -> Timers:
    """Set the condition Stalled when the job does not get on.

    Args:
        table: the workers that the job wants from now on
        scale_in_problem: why an elastic job has more workers than its limit; "" when it has not
    Returns: waits until a change
    """
    # A missing pod goes first: its condition has the time from which the pod counts as lost.
    if snapshot.is_launcher_missing(job):
        pod = snapshot.launcher_ref(job.observed)
        message = f"pod {pod.name}: it is not there any more"
        return _missing(job, snapshot.LAUNCHER_MISSING, message)
    missing_names = [worker.name for worker in table.bucket(WorkerState.MISSING)]
    if missing_names:
        names = ", ".join(missing_names[:_MAX_NAMED])
        message = f"workers: {len(missing_names)} pods are not there any more, for example {names}"
        return _missing(job, snapshot.WORKERS_MISSING, message)
    # What the API refuses keeps all else from coming, and has no pod that could tell.
    fault = refusal_fault(job.observed, job.conditions)
    fault = fault or _workers_fault(job, table, scale_in_problem)
    if fault is not None:
        job.conditions.stall([fault])
        return Timers()
    workers = table.workers.values()
    pods = [worker.pod for worker in workers if worker.pod is not None]
    # An elastic job works on while some of its workers wait for room.
    pods = [pod for pod in pods if not room.waits_in_queue(job, pod)]
    launcher = snapshot.launcher_pod(job.observed)
    # The launcher goes first: a job whose launcher fails gets nothing from its workers.
    if launcher is not None and not is_first_failure(launcher):
        pods.insert(0, launcher)
    examination = pod_faults.examine(pods, job.now)
    # A paused worker has no pod on purpose, so nobody waits for it to recover.
    successors = [row.name for row in workers if row.state is not WorkerState.PAUSED]
    failure, end_s = _last_failure(job, successors, examination.faults)
    job.conditions.stall(faults.in_order((*failure, *examination.faults)))
    return Timers().add(examination.next_s, end_s)


def _workers_fault(job: ElasticSnapshot, table: Table, scale_in_problem: str) -> Fault | None:
    """Why the job cannot have the number of workers that it is to have."""
    fault = job.spec.limits_fault
    if fault is not None:
        text = f"{fault.path} {fault.problem}: {fault.remedy}; {job.text} goes on as it is"
        return job_fault(invalid.INVALID_SPEC, text)
    count, template_bytes = len(table.workers), job.spec.worker_bytes
    # A job that grew beyond the limit only by an edit of its template keeps the pods that it has.
    is_complete = all(worker.pod is not None for worker in table.workers.values())
    if not is_complete and pods_of_workers.are_too_large(job.observed, job.spec, count):
        return size_fault(
            job.observed,
            "spec.etReplicaSpecs.worker.template",
            count,
            template_bytes,
            total_bytes=count * template_bytes,
        )
    usable = count - len(table.bucket(WorkerState.TERMINAL))
    if job.spec.is_elastic and usable < table.enough(job.spec):
        return job_fault(TOO_FEW_WORKERS, f"workers: {phases.too_few(job, table)}")
    return job_fault(_SCALE_IN_FAILED, scale_in_problem) if scale_in_problem else None


def _missing(job: ElasticSnapshot, reason: str, message: str) -> Timers:
    job.conditions.stall([job_fault(reason, message)])
    return Timers().add(snapshot.missing_left_s(job, reason))


# ---- the last failure ---------------------------------------------------------------------------


def _last_failure(
    job: ElasticSnapshot, target: Collection[str], present_faults: Sequence[Fault]
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
    # One replacement is no loop, and its event is enough.
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


def _index(job: ElasticSnapshot, fault: Fault) -> int | None:
    return index_of(job.observed.ref.name, WORKER, fault.worker)


def _has_crashed(pod: Object) -> bool:
    # An eviction or a lost node is no crash of the program.
    return phase_of(pod) == "Failed" and not pod_state.is_disrupted(pod)


def _until_recovered_s(job: ElasticSnapshot, target: Collection[str], index: int) -> float:
    """Seconds until all workers from this index on have run for RESTARTED_S; inf without a pod."""
    waits_s = [0.0]
    for name in target:
        if (index_of(job.observed.ref.name, WORKER, name) or 0) >= index:
            pod = job.pods.get(name)
            since = pod["metadata"].get("creationTimestamp") if pod is not None else None
            is_absent = pod is None or is_being_deleted(pod)
            waits_s.append(math.inf if is_absent else pause_left_s(since, RESTARTED_S, job.now))
    return max(waits_s)
