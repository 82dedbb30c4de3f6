"""Queueing by Kueue: a job that names a Workload runs while Kueue admits it, until its end.

Kueue itself starts and stops jobs of the kinds that it knows. For a job of another kind the user
makes the Workload, and the plan does what Kueue's own reconciler does: it makes the job the owner
of the Workload, holds the job suspended without an admission, tells when the job runs, gives the
quota back after an eviction when the pods have ended, and calls the Workload finished when the job
is. Source: Kueue 0.19, pkg/controller/jobframework/reconciler.go.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from edgeai.api.objects import controllers, is_being_deleted
from edgeai.api.resources import Object, ObjectRef, ResourceType
from edgeai.api.status import Truth, condition_of, mapping, mappings
from edgeai.ids import Uid
from edgeai.times import rfc3339
from globalmanager.contract import Action, Adopt, Job, Observed, PatchStatus, Plan
from globalmanager.kinds.shared.lifecycle import has_ended, own_pods
from globalmanager.kinds.shared.silent_nodes import has_quota
from globalmanager.kinds.shared.status import condition

WORKLOADS: Final = ResourceType("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
LABEL: Final = "kueue.x-k8s.io/prebuilt-workload-name"
"""Kueue's own label of a job whose Workload the user has made: the name of the Workload."""
_SUCCEEDED: Final = ("Succeeded", "Complete")
_FAILED: Final = "Failed"
_AT_WORK: Final = ("Running", "Training")
# Kueue queues a Workload again at once after these evictions.
_REQUEUED: Final = ("Preempted", "NodeFailures")

PlanOf = Callable[[Observed, datetime], Plan]


def references(job: Job) -> frozenset[ObjectRef]:
    """The Workload that the job names; empty when it names none."""
    name = mapping(job.object["metadata"].get("labels")).get(LABEL)
    return frozenset({ObjectRef(WORKLOADS, job.ref.namespace, name)} if name else ())


def queued(plan: PlanOf) -> PlanOf:
    """`plan`, for jobs that may name a Workload. The plan reads the suspension from the object."""

    def plan_in_queue(observed: Observed, now: datetime) -> Plan:
        ref = next(iter(references(observed)), None)
        if ref is None or is_being_deleted(observed.object):
            return plan(observed, now)
        workload = observed.references.get(ref)
        is_over = has_ended(observed, (*_SUCCEEDED, _FAILED))
        may_run = workload is not None and _is_own(observed, workload) and _is_admitted(workload)
        job_plan = plan(observed if may_run or is_over else _held(observed), now)
        if workload is None:
            return job_plan
        actions = tuple(_actions(observed, ref, workload, now))
        stages = (*job_plan.stages, actions) if actions else job_plan.stages
        return msgspec.structs.replace(job_plan, stages=stages)

    return plan_in_queue


def _held(observed: Observed) -> Observed:
    spec = {**mapping(observed.object.get("spec")), "suspend": True}
    return msgspec.structs.replace(observed, object={**observed.object, "spec": spec})


def _actions(
    observed: Observed, ref: ObjectRef, workload: Object, now: datetime
) -> Iterator[Action]:
    uid = Uid(workload["metadata"]["uid"])
    if not controllers(workload):
        # The Workload of a job that is deleted must go too, or its quota would be lost.
        yield Adopt(ref, uid)
    elif _is_own(observed, workload) and not _is_true(workload, "Finished"):
        if has_ended(observed, (*_SUCCEEDED, _FAILED)):
            yield PatchStatus(ref, uid, _finished(observed, workload, now))
        elif _gives_back(observed, workload):
            yield PatchStatus(ref, uid, _released(workload, now))
        elif _is_admitted(workload) and _runs(observed) and not _is_true(workload, "PodsReady"):
            yield PatchStatus(ref, uid, _started(workload, now))


def _is_own(observed: Observed, workload: Object) -> bool:
    return [owner.get("uid") for owner in controllers(workload)] == [observed.uid]


def _is_true(workload: Object, type_: str) -> bool:
    return condition_of(workload, type_).get("status") == Truth.TRUE


def _is_admitted(workload: Object) -> bool:
    return _is_true(workload, "Admitted") and not _is_true(workload, "Evicted")


def _runs(observed: Observed) -> bool:
    return any(condition(observed, type_).get("status") == Truth.TRUE for type_ in _AT_WORK)


def _gives_back(observed: Observed, workload: Object) -> bool:
    """Whether the job is evicted, and no pod uses the quota any more."""
    is_evicted = _is_true(workload, "Evicted") and _is_true(workload, "QuotaReserved")
    return is_evicted and not any(
        has_quota(observed, pod, is_suspended=True) for pod in own_pods(observed)
    )


def _started(workload: Object, now: datetime) -> dict[str, Any]:
    """The patch without which Kueue evicts the job after half an hour."""
    # A worker that fails later changes nothing, because the job itself replaces the worker.
    changes = {"PodsReady": (Truth.TRUE, "Started", "The pods of the job run")}
    return {"conditions": _conditions(workload, changes, now)}


def _released(workload: Object, now: datetime) -> dict[str, Any]:
    eviction = condition_of(workload, "Evicted")
    reason, message = str(eviction.get("reason") or "Evicted"), str(eviction.get("message") or "")
    changes = {
        "QuotaReserved": (Truth.FALSE, "Pending", message),
        "Admitted": (Truth.FALSE, "NoReservation", "The workload has no reservation"),
        "PodsReady": (Truth.FALSE, "WaitForStart", "The job does not run"),
        "Requeued": (Truth.TRUE if reason in _REQUEUED else Truth.FALSE, reason, message),
    }
    return {"admission": None, "conditions": _conditions(workload, changes, now)}


def _finished(observed: Observed, workload: Object, now: datetime) -> dict[str, Any]:
    is_success = has_ended(observed, _SUCCEEDED)
    reason = "Succeeded" if is_success else _FAILED
    message = f"{observed.type.kind} {observed.ref.name} has ended"
    changes = {"Finished": (Truth.TRUE, reason, message)}
    return {"conditions": _conditions(workload, changes, now)}


def _conditions(
    workload: Object, changes: Mapping[str, tuple[Truth, str, str]], now: datetime
) -> list[Mapping[str, Any]]:
    """The whole list, because a merge patch replaces lists."""
    present = mappings(mapping(workload.get("status")).get("conditions"))
    others = [one for one in present if one.get("type") not in changes]
    new = (
        {
            "type": type_,
            "status": str(truth),
            "reason": reason,
            "message": message,
            "lastTransitionTime": rfc3339(now),
            "observedGeneration": workload["metadata"].get("generation", 0),
        }
        for type_, (truth, reason, message) in changes.items()
    )
    return [*others, *new]
