"""Why a training job does not get on: a pod pends for long, a node is lost, the API refuses a pod.

Called by `plan`, and by the kind trainingjob. The condition Stalled tells the first of these
reasons. The job has the condition only as long as the reason lasts.
"""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final, NamedTuple

from globalmanager.contract import Object, Observed
from globalmanager.rules import deletions, faults, status
from globalmanager.rules.faults import node_of, phase_of
from globalmanager.rules.lifecycle import Timers, left_s
from globalmanager.rules.objects import is_being_deleted
from globalmanager.rules.status import mapping
from globalmanager.rules.training import gangs, replicas, waiting
from globalmanager.rules.training import history as histories
from globalmanager.rules.training.conditions import Conditions
from globalmanager.rules.training.present import Present, has_enough

PENDING_S: Final = 60.0
"""A pod or PodGroup that pends for this number of seconds stalls its job. Most start sooner."""


TOO_LARGE: Final = "TooLarge"


class Stall(NamedTuple):
    reason: str
    message: str
    """ "<what>: <why>". A stall with the same reason and the same <what> is the same stall."""


def find(job: Present) -> tuple[Stall | None, Timers]:
    """The first reason why the job does not get on, and the waits until further reasons."""
    pods = histories.pods_by_name(job.observed)
    known = (
        of_refusal(job.observed, job.conditions)
        or _of_missing_type(job)
        or _of_limits(job)
        or _of_size(job, pods)
    )
    if known is not None:
        return known, Timers()
    may_wait = has_enough(job)
    present = [
        pods[name]
        for name, _, _ in replicas.names(job.observed.ref.name, job.spec)
        if name in pods
        and name not in job.history.finished
        and not (may_wait and waiting.is_queued(pods[name]))
    ]
    looked_at = [_of_pod_group(job), *(of_pod(pod, job.now) for pod in present)]
    told = (stall for stall, wait_s in looked_at if stall is not None and wait_s <= 0)
    return next(told, None), Timers().add(*(wait_s for _, wait_s in looked_at))


def of_refusal(observed: Observed, conditions: Conditions) -> Stall | None:
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
    return Stall(refusal.reason, str(known.get("message")) if is_same else refusal.message)


def _of_missing_type(job: Present) -> Stall | None:
    gang = gangs.of(job.observed.settings)
    if gang is None or gang.type not in job.observed.absent:
        return None
    detail = (
        f"the API server does not serve {gang.type.api_version}; install the definitions of "
        f"{gang.scheduler}, or start the GlobalManager without --gang-scheduler-name"
    )
    return Stall("PodGroupsNotServed", f"{gang.type}: {detail}")


def _of_limits(job: Present) -> Stall | None:
    fault = job.spec.start_fault
    if fault is None:
        return None
    detail = f"{fault.remedy}; {job.text} goes on as it is"
    return Stall("InvalidSpec", f"{fault.path} {fault.problem}: {detail}")


def _of_size(job: Present, pods: Collection[str]) -> Stall | None:
    spec = job.spec
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
) -> Stall:
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
    return Stall(TOO_LARGE, f"{field}: {detail}")


def _of_pod_group(job: Present) -> tuple[Stall | None, float]:
    """(stall, seconds until it counts)"""
    gang = gangs.of(job.observed.settings)
    group = gangs.found(gang, job.observed) if gang is not None else None
    if group is None or gangs.admits_pods(job.observed):
        return None, 0.0
    since = group["metadata"].get("creationTimestamp")
    detail = "its scheduler has not admitted it yet, so there are no pods"
    stall = Stall("PodGroupPending", f"PodGroup {job.observed.ref.name}: {detail}")
    return stall, left_s(since, PENDING_S, job.now)


def of_suspension(pods: Iterable[Object], conditions: Conditions, now: datetime) -> Timers:
    """Set the condition Stalled of a suspended job whose pods do not go: they still have their
    resources. Returns: the waits until a change

    Args: pods: the pods that the job still has
    """
    fault, timers = deletions.first_overdue(pods, now)
    if fault is not None:
        conditions.stall(fault.reason, fault.message)
    return timers


def of_pod(pod: Object, now: datetime) -> tuple[Stall | None, float]:
    """(stall of the job of this pod, seconds until it counts)"""
    name, node = pod["metadata"]["name"], node_of(pod)
    what = f"pod {name} on node {node}" if node else f"pod {name}"
    if is_being_deleted(pod):
        late = deletions.fault(pod)
        return Stall(late.reason, late.message), deletions.overdue_in_s(pod, now)
    if phase_of(pod) == "Pending":
        fault = faults.first_fault([pod])
        since = pod["metadata"].get("creationTimestamp")
        stall = Stall("Pending", f"{what}: it does not start")
        if fault is not None:
            stall = Stall(_steady(fault.reason), fault.message)
        return stall, left_s(since, PENDING_S, now)
    if phase_of(pod) == "Unknown" or _is_cut_off(pod):
        return Stall("NodeNotReady", f"{what}: the node does not report any more"), 0.0
    return None, 0.0


def _steady(reason: str) -> str:
    """A node that cannot pull an image tells two reasons in turn."""
    return "ImagePullBackOff" if reason == "ErrImagePull" else reason


def _is_cut_off(pod: Object) -> bool:
    """Whether the node controller has marked the pod, because its node is silent. A node itself
    never says that all containers are ready and the pod is not, unless the pod has readiness gates.
    """
    entries = mapping(pod.get("status")).get("conditions")
    listed = [mapping(entry) for entry in entries] if isinstance(entries, list) else []
    told = {str(entry.get("type")): entry.get("status") for entry in listed}
    has_gates = bool(mapping(pod.get("spec")).get("readinessGates"))
    is_marked = (told.get("ContainersReady"), told.get("Ready")) == ("True", "False")
    return phase_of(pod) == "Running" and is_marked and not has_gates
