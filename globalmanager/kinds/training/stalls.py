"""Why a training job does not get on: the API refuses a pod, or a pod has a fault.

The condition Stalled names these faults. The job has the condition only as long as they last.
"""

import math
from collections.abc import Collection, Sequence
from typing import Final

from edgeai.api import pod_state
from edgeai.api.resources import Object
from edgeai.api.status import left_s
from edgeai.faults import faults
from edgeai.faults.container_faults import PENDING_S
from edgeai.faults.faults import Fault, job_fault
from edgeai.faults.pod_faults import AWAITING_MASTER, MASTER_WAIT, examine, master_fault
from edgeai.faults.remedies import Cause
from globalmanager.kinds.shared.job_faults import (
    RESTARTED_S,
    is_first_failure,
    refusal_fault,
    size_fault,
)
from globalmanager.kinds.shared.lifecycle import Timers
from globalmanager.kinds.shared.queued_pods import is_queued
from globalmanager.kinds.training import gangs, replicas, waiting
from globalmanager.kinds.training import history as histories
from globalmanager.kinds.training.snapshot import Snapshot, counts

_MASTER: Final = "Master"


def find(job: Snapshot) -> tuple[tuple[Fault, ...], Timers]:
    """What keeps the job from getting on, in causal order, and the waits until that changes."""
    # Each of these holds up the whole job, so the faults of single pods would only distract.
    fault = (
        refusal_fault(job.observed, job.conditions)
        or _missing_type_fault(job)
        or _limits_fault(job)
        or _size_fault(job)
    )
    if fault is not None:
        return (fault,), Timers()
    pods = examine(_pods_without_excuse(job), job.now)
    pod_faults, master_in_s = _with_unreachable_masters(job, pods.faults)
    crashes, crash_end_s = _restart_faults(job, {fault.worker for fault in pod_faults})
    group_faults, group_in_s = _pod_group_faults(job)
    timers = Timers().add(pods.next_s, master_in_s, crash_end_s, group_in_s)
    return faults.in_order((*group_faults, *crashes, *pod_faults)), timers


def _pods_without_excuse(job: Snapshot) -> list[Object]:
    """The pods whose faults count. An elastic job with enough replicas may wait for room."""
    failures = histories.failures(job.observed, job.spec, job.history)
    final = {failure.name for failure in failures if not failure.is_retryable}
    elastic = job.spec.elastic
    may_wait = elastic is not None and counts(job)[elastic.type].active >= elastic.least

    def is_excused(name: str, type_: str) -> bool:
        pod = job.pods[name]
        # The scheduler starts such a pod when there is room, which may take days and is no fault.
        waits = is_queued(pod) or waiting.has_lost_room(job.observed, job.spec, type_, pod)
        # A first failure that is retried shows in Restarting, and one that is final ends the job.
        return (may_wait and waits) or (is_first_failure(pod) and name not in final)

    unfinished = (
        (name, replica.type)
        for name, replica, _ in job.members
        if name in job.pods and name not in job.history.finished
    )
    return [job.pods[name] for name, type_ in unfinished if not is_excused(name, type_)]


def _with_unreachable_masters(
    job: Snapshot, pod_faults: Sequence[Fault]
) -> tuple[list[Fault], float]:
    """The faults, with MasterUnreachable in place of AwaitingMaster for each worker on an edge node
    that has waited for PENDING_S for a master that runs; and the seconds until the next one.
    """
    pods = job.pods
    master = replicas.name_of(job.observed.ref.name, _MASTER, 0)
    # A master with a fault does not listen, so the network of the workers is not to blame.
    if master not in pods or any(fault.worker == master for fault in pod_faults):
        return [*pod_faults], math.inf
    master_since = pod_state.running_since(pods[master], job.spec.framework.container)

    def wait_left_s(fault: Fault) -> float:
        if fault.reason != AWAITING_MASTER or fault.node not in job.observed.contacts:
            return math.inf
        wait_since = pod_state.running_since(pods[fault.worker], MASTER_WAIT)
        # Both get the time: a master that has just started may not listen yet.
        return max(left_s(since, PENDING_S, job.now) for since in (master_since, wait_since))

    waits = [(fault, wait_left_s(fault)) for fault in pod_faults]
    return [
        master_fault(pods[fault.worker], master) if wait_s <= 0 else fault
        for fault, wait_s in waits
    ], min((wait_s for _, wait_s in waits if wait_s > 0), default=math.inf)


def _restart_faults(job: Snapshot, faulty: Collection[str]) -> tuple[list[Fault], float]:
    """The crashes of replicas that the job has started again and again, each until the replica has
    run for RESTARTED_S, and the seconds until one of them is over. The pods that crashed are gone,
    so only the condition Stalled still names the crashes.

    Args: faulty: replicas whose present pods have faults
    """
    pods = job.pods
    crashes, waits_s = [], [math.inf]
    for fault in faults.faults_in(job.conditions.last_stall):
        name = fault.worker
        # The condition Restarting is enough for one restart.
        is_loop = fault.cause is Cause.CRASH and job.history.attempt(name) > 1
        if not is_loop or name in faulty or name in job.history.finished:
            continue
        creation = pods[name]["metadata"].get("creationTimestamp") if name in pods else None
        wait_s = left_s(creation, RESTARTED_S, job.now)
        if wait_s > 0:
            crashes.append(fault)
            waits_s.append(wait_s)
    return crashes, min(waits_s)


def _missing_type_fault(job: Snapshot) -> Fault | None:
    gang = gangs.gang_of(job.observed.settings)
    if gang is None or gang.type not in job.observed.absent:
        return None
    detail = (
        f"the API server does not serve {gang.type.api_version}; install the definitions of "
        f"{gang.scheduler}, or start the GlobalManager without --gang-scheduler-name"
    )
    return job_fault("PodGroupsNotServed", f"{gang.type}: {detail}")


def _limits_fault(job: Snapshot) -> Fault | None:
    fault = job.spec.start_fault
    if fault is None:
        return None
    # An edit must not end a training that runs. Only a new job is refused.
    detail = f"{fault.remedy}; {job.text} goes on as it is"
    return job_fault("InvalidSpec", f"{fault.path} {fault.problem}: {detail}")


def _size_fault(job: Snapshot) -> Fault | None:
    spec = job.spec
    # Pods that exist go on, so the size matters only to a job that lacks pods.
    is_complete = all(name in job.pods or name in job.history.finished for name, *_ in job.members)
    if is_complete or not replicas.is_too_large(job.observed, spec):
        return None
    # A smaller template helps most in the type that takes most.
    largest = max(spec.replicas, key=lambda replica: replica.count * replica.template_bytes)
    field = f"{spec.framework.replicas_field}.{largest.type}.template"
    return size_fault(
        job.observed, field, largest.count, largest.template_bytes, total_bytes=spec.template_bytes
    )


def _pod_group_faults(job: Snapshot) -> tuple[tuple[Fault, ...], float]:
    """(the fault of a PodGroup that has waited for PENDING_S, seconds until there is one)"""
    gang = gangs.gang_of(job.observed.settings)
    group = gangs.existing_group(gang, job.observed) if gang is not None else None
    if group is None or gangs.admits_pods(job.observed):
        return (), math.inf
    since = group["metadata"].get("creationTimestamp")
    detail = "its scheduler has not admitted it yet, so there are no pods"
    fault = job_fault("PodGroupPending", f"PodGroup {job.observed.ref.name}: {detail}")
    # An admission may take a while, so only a long wait is a fault.
    wait_s = left_s(since, PENDING_S, job.now)
    return ((fault,) if wait_s <= 0 else ()), wait_s
