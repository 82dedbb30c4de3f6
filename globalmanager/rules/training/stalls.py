"""Why a training job does not get on: the API refuses a pod, or a pod has a fault.

The condition Stalled tells these faults. The job has the condition only as long as they last.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

from globalmanager.contract import Object, Observed
from globalmanager.rules import faults, pod_state, status
from globalmanager.rules.container_faults import PENDING_S
from globalmanager.rules.faults import Fault, job_fault
from globalmanager.rules.lifecycle import Timers
from globalmanager.rules.objects import is_being_deleted
from globalmanager.rules.pod_faults import AWAITING_MASTER, MASTER_WAIT, examine, master_fault
from globalmanager.rules.pod_state import phase_of
from globalmanager.rules.remedies import Cause
from globalmanager.rules.status import left_s
from globalmanager.rules.training import gangs, replicas, waiting
from globalmanager.rules.training import history as histories
from globalmanager.rules.training.conditions import Conditions
from globalmanager.rules.training.present import Present, has_enough
from globalmanager.rules.training.replicas import attempt_of

TOO_LARGE: Final = "TooLarge"
_MASTER: Final = "Master"
RESTARTED_S: Final = 60.0
"""Seconds that a replica must run after the job has started it again. Before, its failure is still
told."""


def find(job: Present) -> tuple[tuple[Fault, ...], Timers]:
    """What keeps the job from getting on, in causal order, and the waits until that changes."""
    known = (
        of_refusal(job.observed, job.conditions)
        or _of_missing_type(job)
        or _of_limits(job)
        or _of_size(job)
    )
    if known is not None:
        return (known,), Timers()
    examined = examine(_troubled_pods(job), job.now)
    pod_faults, master_in_s = _of_edge_workers(job, examined.faults)
    earlier, earlier_s = _of_restarts(job, {fault.worker for fault in pod_faults})
    group, group_in_s = _of_pod_group(job)
    timers = Timers().add(examined.next_s, master_in_s, earlier_s, group_in_s)
    group_faults = () if group is None or group_in_s > 0 else (group,)
    return faults.in_order((*group_faults, *earlier, *pod_faults)), timers


def is_first_failure(pod: Object) -> bool:
    """Whether the pod has failed, and its replica has not started again before. The condition
    Restarting tells such a failure, where the replica starts again.
    """
    return phase_of(pod) == "Failed" and not attempt_of(pod) and not is_being_deleted(pod)


def _troubled_pods(job: Present) -> list[Object]:
    """The pods whose faults keep the job from getting on. An elastic job with enough replicas may
    wait for room.
    """
    pods = histories.pods_by_name(job.observed)
    failures = histories.failures(job.observed, job.spec, job.history)
    final = {one.name for one in failures if not one.is_retryable}
    may_wait = has_enough(job)

    def is_told(name: str, type_: str) -> bool:
        pod = pods[name]
        is_waiting = waiting.is_queued(pod) or waiting.has_lost_room(
            job.observed, job.spec, type_, pod
        )
        is_first = is_first_failure(pod) and name not in final
        return not (may_wait and is_waiting) and not is_first

    return [
        pods[name]
        for name, each, _ in replicas.names(job.observed.ref.name, job.spec)
        if name in pods and name not in job.history.finished and is_told(name, each.type)
    ]


def _of_edge_workers(job: Present, pod_faults: Sequence[Fault]) -> tuple[list[Fault], float]:
    """The faults, where a worker on an edge node that has waited for PENDING_S for a master that
    runs says that it does not reach the master, and the seconds until another worker says so.
    """
    pods = histories.pods_by_name(job.observed)
    name = replicas.name_of(job.observed.ref.name, _MASTER, 0)
    if name not in pods or any(fault.worker == name for fault in pod_faults):
        return [*pod_faults], math.inf
    master_since = pod_state.running_since(pods[name], job.spec.framework.container)

    def wait_left_s(fault: Fault) -> float:
        if fault.reason != AWAITING_MASTER or fault.node not in job.observed.contacts:
            return math.inf
        since = pod_state.running_since(pods[fault.worker], MASTER_WAIT)
        return max(left_s(each, PENDING_S, job.now) for each in (master_since, since))

    waits = [(fault, wait_left_s(fault)) for fault in pod_faults]
    return [
        master_fault(pods[fault.worker], name) if wait_s <= 0 else fault for fault, wait_s in waits
    ], min((wait_s for _, wait_s in waits if wait_s > 0), default=math.inf)


def _of_restarts(job: Present, faulty: Collection[str]) -> tuple[list[Fault], float]:
    """The crashes of replicas that the job has started again and again, each until the replica has
    run for RESTARTED_S, and the seconds until one of them is over. The pods that crashed are gone,
    so the condition Stalled has the only word about them.

    Args: faulty: replicas whose present pods have faults
    """
    known = job.conditions.known_stall
    pods = histories.pods_by_name(job.observed)
    found, waits_s = [], [math.inf]
    for fault in faults.faults_in(known):
        name = fault.worker
        is_loop = fault.cause is Cause.CRASH and job.history.attempt(name) > 1
        if not is_loop or name in faulty or name in job.history.finished:
            continue
        made_at = pods[name]["metadata"].get("creationTimestamp") if name in pods else None
        waits_s.append(left_s(made_at, RESTARTED_S, job.now))
        if waits_s[-1] > 0:
            found.append(fault)
    return found, min(each for each in waits_s if each > 0)


def of_refusal(observed: Observed, conditions: Conditions) -> Fault | None:
    """Why the API refuses a child. The API may name another child in each answer, so the first
    answer about a generation of the job stays.
    """
    refusal = observed.refusal
    if refusal is None or refusal.reason == status.WAITING:
        return None
    known = conditions.known_stall
    is_same = (known.get("reason"), status.of(observed).get("observedGeneration")) == (
        refusal.reason,
        observed.generation,
    )
    return job_fault(refusal.reason, str(known.get("message")) if is_same else refusal.message)


def _of_missing_type(job: Present) -> Fault | None:
    gang = gangs.of(job.observed.settings)
    if gang is None or gang.type not in job.observed.absent:
        return None
    detail = (
        f"the API server does not serve {gang.type.api_version}; install the definitions of "
        f"{gang.scheduler}, or start the GlobalManager without --gang-scheduler-name"
    )
    return job_fault("PodGroupsNotServed", f"{gang.type}: {detail}")


def _of_limits(job: Present) -> Fault | None:
    fault = job.spec.start_fault
    if fault is None:
        return None
    detail = f"{fault.remedy}; {job.text} goes on as it is"
    return job_fault("InvalidSpec", f"{fault.path} {fault.problem}: {detail}")


def _of_size(job: Present) -> Fault | None:
    spec, pods = job.spec, histories.pods_by_name(job.observed)
    is_complete = all(
        name in pods or name in job.history.finished
        for name, _, _ in replicas.names(job.observed.ref.name, spec)
    )
    if is_complete or not replicas.is_too_large(job.observed, spec):
        return None
    most = max(spec.replicas, key=lambda each: each.count * each.template_bytes)
    field = f"{spec.framework.replicas_field}.{most.type}.template"
    return of_size(
        job.observed, field, most.count, most.template_bytes, total_bytes=spec.template_bytes
    )


def of_size(
    observed: Observed, field: str, count: int, template_bytes: int, *, total_bytes: int
) -> Fault:
    """The stall of a job whose pods together are too large.

    Args:
        field: the template that takes most, in `count` pods
        total_bytes: sum of the templates of all pods, as JSON
    """
    limit = observed.settings.job_template_bytes
    detail = (
        f"{count} pods of {template_bytes} bytes; the templates of all pods of a job may have "
        f"{limit} bytes, and have {total_bytes}: make the template smaller, for example with a "
        "ConfigMap in place of many variables, or use fewer replicas. Pods that exist go on"
    )
    return job_fault(TOO_LARGE, f"{field}: {detail}")


def _of_pod_group(job: Present) -> tuple[Fault | None, float]:
    """(fault, seconds until it counts)"""
    gang = gangs.of(job.observed.settings)
    group = gangs.found(gang, job.observed) if gang is not None else None
    if group is None or gangs.admits_pods(job.observed):
        return None, math.inf
    since = group["metadata"].get("creationTimestamp")
    detail = "its scheduler has not admitted it yet, so there are no pods"
    fault = job_fault("PodGroupPending", f"PodGroup {job.observed.ref.name}: {detail}")
    return fault, left_s(since, PENDING_S, job.now)


def of_suspension(pods: Iterable[Object], conditions: Conditions, now: datetime) -> Timers:
    """Set the condition Stalled of a suspended job whose pods do not go: they still have their
    resources. Returns: the waits until a change

    Args: pods: the pods that the job still has
    """
    examined = examine(filter(is_being_deleted, pods), now)
    conditions.stall(examined.faults)
    return Timers().add(examined.next_s)
