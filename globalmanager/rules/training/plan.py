"""plan of a training job: its replicas run until the job succeeds or fails; then its pods go.

Called by the kinds tfjob and pytorchjob. Source of the order of the rules:
kubeflow/training-operator 1.9, pkg/controller.v1/common/job.go. docs/kinds has the differences.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from common.times import rfc3339
from globalmanager.contract import (
    PODS,
    SERVICES,
    Action,
    Delete,
    Event,
    InvalidSpec,
    Object,
    ObjectRef,
    Observed,
    Plan,
    Severity,
)
from globalmanager.rules import children, faults, lifecycle, status
from globalmanager.rules.children import Stages
from globalmanager.rules.faults import phase_of
from globalmanager.rules.lifecycle import CleanPods, Timers, left_s, own_pods
from globalmanager.rules.objects import is_being_deleted
from globalmanager.rules.status import Truth, mapping
from globalmanager.rules.training import history as histories
from globalmanager.rules.training import replicas
from globalmanager.rules.training.conditions import ENDS, Conditions, State, has_ended
from globalmanager.rules.training.framework import Counts, TrainingJob
from globalmanager.rules.training.history import Failure, History

OPERATOR: Final = "kubeflow.org/training-operator"
"""The value of managedBy with which a job is ours. A job without managedBy is ours too."""
_RESTART_BASE_S: Final = 1.0
_RESTART_MAX_S: Final = 60.0
_MAX_NEW_PODS: Final = 100
"""In one plan. Each pod of a TFJob names all replicas, so all pods of a large job at once would
take seconds and much memory. The first pods cause the next plan.
"""


class _Present(NamedTuple):
    """One job at one moment."""

    observed: Observed
    spec: TrainingJob
    now: datetime
    conditions: Conditions
    history: History

    @property
    def text(self) -> str:
        """The job in messages: "TFJob mnist"."""
        return f"{self.spec.framework.kind} {self.observed.ref.name}"


def plan(observed: Observed, now: datetime) -> Plan:
    """The next steps of the job."""
    if is_being_deleted(observed.object) or _is_managed_elsewhere(observed):
        return Plan()
    if has_ended(observed):
        return _after_the_end(observed, now)
    kind = observed.type.kind
    conditions = Conditions(observed, kind, now)
    conditions.set(State.CREATED, f"{kind} {observed.ref.name} is created.")
    if observed.invalid is not None:
        return _invalid(observed, observed.invalid, conditions, now)
    spec: TrainingJob = observed.spec
    names = {name for name, _, _ in replicas.names(observed.ref.name, spec)}
    present = _Present(observed, spec, now, conditions, histories.known(observed, names))
    return _suspended(present) if spec.policy.suspend else _living(present)


def _invalid(observed: Observed, error: InvalidSpec, conditions: Conditions, now: datetime) -> Plan:
    """A job that never started has failed. Of a job that has started, an edit made the spec wrong:
    the job stays as it is until the spec is corrected, and one event for each edit tells the fault.
    The webhook of the Kubeflow operator refuses such an edit.
    """
    known, kind, name = status.of(observed), observed.type.kind, observed.ref.name
    if status.parse_time(known.get("startTime")) is None:
        message = f"{kind} {name} has failed because the spec is invalid: {error}"
        conditions.set(State.FAILED, message, cause="FailedValidation")
        return _written(observed, conditions, {"completionTime": rfc3339(now)}, now)
    if known.get("observedGeneration") == observed.generation:
        return Plan()
    message = f"{kind} {name} stays as it is because the spec is invalid: {error}"[
        : status.MAX_MESSAGE_CHARS
    ]
    event = Event(Severity.WARNING, f"{kind}FailedValidation", message)
    return Plan(status={"observedGeneration": observed.generation}, events=(event,))


def _is_managed_elsewhere(observed: Observed) -> bool:
    policy = mapping(mapping(observed.object.get("spec")).get("runPolicy"))
    return policy.get("managedBy") not in (None, "", OPERATOR)


# ---- a job that runs ----------------------------------------------------------------------------


def _living(job: _Present) -> Plan:
    started = _start_time(job)
    counts = _counts(job)
    failed = histories.failures(job.observed, job.spec, job.history)
    ending = _ending(job, started, counts, failed)
    if ending is not None:
        state, message = ending
        job.conditions.set(state, message)
        fields = {"startTime": started, "completionTime": rfc3339(job.now)}
        return _written(
            job.observed, job.conditions, fields | _statuses(job, counts, state), job.now
        )
    history = _history_after(job, failed)
    if history != job.history:
        retried = [one for one in failed if one.is_retryable]
        job.conditions.set(State.RESTARTING, _failed_text(job, retried, "is restarting because"))
    elif counts[job.spec.framework.deciding(job.spec)].active and not _is_restarting(job):
        job.conditions.set(State.RUNNING, f"{job.text} is running.")
    fields = {"startTime": started, **history.fields, **_statuses(job, counts)}
    stages, timers = _stages(job) if history == job.history else ((), Timers())
    deadline = left_s(started, job.spec.policy.active_deadline_seconds, job.now)
    return _written(
        job.observed, job.conditions, fields, job.now, stages=stages, timers=timers.add(deadline)
    )


def _is_restarting(job: _Present) -> bool:
    """Whether a replica that failed does not run again yet. A pod of the present attempt that has
    failed stays so: its type is tolerant.
    """
    pods = histories.pods_by_name(job.observed)
    return job.conditions.is_true(State.RESTARTING) and any(
        job.history.attempt(name) > 0
        and name not in job.history.finished
        and (name not in pods or not _has_come_up(pods[name], job.history.attempt(name)))
        for name, _, _ in replicas.names(job.observed.ref.name, job.spec)
    )


def _has_come_up(pod: Object, attempt: int) -> bool:
    """Whether the pod of this attempt runs, or has ended."""
    return phase_of(pod) != "Pending" and replicas.attempt_of(pod) >= attempt


def _start_time(job: _Present) -> str:
    """When the job was first worked on, or was last resumed."""
    if job.conditions.is_true(State.SUSPENDED):
        message = f"{job.text} is resumed."
        job.conditions.set(State.SUSPENDED, message, truth=Truth.FALSE, cause="Resumed")
        return rfc3339(job.now)
    return str(lifecycle.first_time(job.observed, "startTime", job.now, is_due=True))


def _ending(
    job: _Present, started: str, counts: Mapping[str, Counts], failed: list[Failure]
) -> tuple[State, str] | None:
    """The final condition of the job and its message; None while the job goes on."""
    policy, framework = job.spec.policy, job.spec.framework
    if framework.has_succeeded(job.spec, counts, job.history.finished):
        return State.SUCCEEDED, f"{job.text} is successfully completed."
    final = [one for one in failed if not one.is_retryable and one.type not in job.spec.tolerant]
    if final:
        return State.FAILED, _failed_text(job, final, "has failed because")
    if policy.backoff_limit is not None and _restarts(job, failed) >= max(policy.backoff_limit, 1):
        reason = "it has reached the specified backoff limit"
        return State.FAILED, f"{job.text} has failed because {reason}"
    if left_s(started, policy.active_deadline_seconds, job.now) <= 0:
        reason = "it was active longer than specified deadline"
        return State.FAILED, f"{job.text} has failed because {reason}"
    return None


def _stages(job: _Present) -> tuple[Stages, Timers]:
    """The changes of Services and pods, and the waits until further ones."""
    observed, spec, history = job.observed, job.spec, job.history
    listed = list(replicas.names(observed.ref.name, spec))
    pods = histories.pods_by_name(observed)
    worn, timers = [], Timers()
    for name, _, _ in listed:
        pod = pods.get(name)
        if pod is None or replicas.attempt_of(pod) >= history.attempt(name):
            continue
        wait_s = _left_of_backoff(pod, history.attempt(name), job.now)
        timers = timers.add(wait_s)
        if wait_s <= 0 and not is_being_deleted(pod):
            worn.append(lifecycle.deletion(pod))
    services = [replicas.service(observed, spec, each, index) for _, each, index in listed]
    missing = [one for one in listed if one[0] not in pods and one[0] not in history.finished]
    wanted = [
        replicas.pod(observed, spec, each, index, attempt=history.attempt(name))
        for name, each, index in missing[:_MAX_NEW_PODS]
    ]
    kept = history.finished.union(name for name, _, _ in listed if name in pods)
    settled = {ObjectRef(PODS, observed.ref.namespace, name) for name in kept}
    stages = children.reconcile(observed, [*services, *wanted], replicas.OWNS, settled=settled)
    return tuple(stage for stage in (tuple(worn), *stages) if stage), timers


def _left_of_backoff(pod: Object, attempt: int, now: datetime) -> float:
    """Seconds until a failed pod may be replaced. A pod that still runs is replaced at once: all
    pods of its job restart.
    """
    if phase_of(pod) != "Failed":
        return 0.0
    wait_s = min(_RESTART_MAX_S, _RESTART_BASE_S * 2.0 ** min(attempt - 1, 32))
    return left_s(pod["metadata"].get("creationTimestamp"), wait_s, now, unknown=0.0)


def _restarts(job: _Present, failed: list[Failure]) -> int:
    """All restarts so far: pods made anew, and containers that the nodes have started again."""
    return _history_after(job, failed).total + histories.container_restarts(job.observed)


def _history_after(job: _Present, failed: list[Failure]) -> History:
    """The history with the failures that are retried."""
    retried = [one for one in failed if one.is_retryable]
    return job.history.after(retried, job.spec.policy.restart_scope) if retried else job.history


def _failed_text(job: _Present, failed: list[Failure], verb: str) -> str:
    """ "TFJob mnist has failed because 1 Worker replica(s) failed." with the first one's cause."""
    type_ = failed[0].type
    number = sum(one.type == type_ for one in failed)
    fault = faults.first_fault([failed[0].pod])
    cause = f" {fault.message}" if fault is not None else ""
    return f"{job.text} {verb} {number} {type_} replica(s) failed.{cause}"


# ---- a job that is suspended, or has ended ------------------------------------------------------


def _suspended(job: _Present) -> Plan:
    message = f"{job.text} is suspended."
    if job.conditions.is_true(State.RUNNING):
        job.conditions.set(State.RUNNING, message, truth=Truth.FALSE, cause="Suspended")
    job.conditions.set(State.SUSPENDED, message)
    deletions = tuple(
        Delete(ref, child["metadata"]["uid"])
        for ref, child in job.observed.children.items()
        if not is_being_deleted(child)
    )
    fields = {**job.history.fields, **_statuses(job, _counts(job))}
    return _written(
        job.observed, job.conditions, fields, job.now, stages=(deletions,) if deletions else ()
    )


def _after_the_end(observed: Observed, now: datetime) -> Plan:
    spec: TrainingJob | None = observed.spec
    ttl_s = spec.policy.ttl_seconds_after_finished if spec is not None else None
    expired, timers = lifecycle.deletion_after(observed, ttl_s, now, since=_ended_at(observed))
    if expired:
        return Plan(stages=(expired,))
    policy = spec.clean_pods if spec is not None else CleanPods.NONE
    deletions = (*lifecycle.clean_up(own_pods(observed), policy), *_services(observed, policy))
    return Plan(stages=(deletions,) if deletions else (), requeue_after_s=timers.next_s)


def _ended_at(observed: Observed) -> Any:
    """When the job ended. The Kubeflow operator gives some failed jobs no completionTime."""
    ends = (status.condition(observed, end).get("lastTransitionTime") for end in ENDS)
    return status.of(observed).get("completionTime") or next(filter(None, ends), None)


def _services(observed: Observed, policy: CleanPods) -> tuple[Action, ...]:
    """The deletions of Services that no pod needs. A pod that stays keeps its Service."""
    done = {
        pod["metadata"]["name"]
        for pod in own_pods(observed)
        if phase_of(pod) in ("Succeeded", "Failed")
    }
    kept = {CleanPods.ALL: frozenset[str](), CleanPods.RUNNING: done}.get(policy)
    if kept is None:
        return ()
    return tuple(
        Delete(ref, child["metadata"]["uid"])
        for ref, child in observed.children.items()
        if ref.type == SERVICES and ref.name not in kept and not is_being_deleted(child)
    )


# ---- the status ---------------------------------------------------------------------------------


def _counts(job: _Present) -> dict[str, Counts]:
    """Type -> numbers, of all types that the spec has."""
    pods = histories.pods_by_name(job.observed)
    found = {}
    for each in job.spec.replicas:
        names = [
            replicas.name_of(job.observed.ref.name, each.type, index) for index in range(each.count)
        ]
        present = [pods[name] for name in names if name in pods]
        found[each.type] = Counts(
            wanted=each.count,
            active=sum(phase_of(pod) == "Running" and faults.is_active(pod) for pod in present),
            succeeded=sum(name in job.history.finished for name in names),
            failed=sum(phase_of(pod) == "Failed" for pod in present),
        )
    return found


def _statuses(
    job: _Present, counts: Mapping[str, Counts], end: State | None = None
) -> dict[str, Any]:
    """The numbers as the status shows them. Of a job that has succeeded, an active replica counts
    as succeeded.
    """
    framework, name = job.spec.framework, job.observed.ref.name
    entries = {}
    for type_, each in counts.items():
        is_done = end is State.SUCCEEDED
        numbers = {
            "active": 0 if is_done else each.active,
            "succeeded": each.succeeded + (each.active if is_done else 0),
            "failed": each.failed,
        }
        labels = replicas.type_labels(name, framework, type_)
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        entries[type_] = {key: n for key, n in numbers.items() if n} | {"selector": selector}
    return {**framework.marks, framework.statuses_field: entries}


def _written(
    observed: Observed,
    conditions: Conditions,
    fields: Mapping[str, Any],
    now: datetime,
    *,
    stages: Stages = (),
    timers: Timers = Timers(),  # noqa: B008 - frozen
) -> Plan:
    known = status.of(observed)
    maps = {
        key: status.replacement_patch(mapping(known.get(key)), value)
        for key, value in fields.items()
        if isinstance(value, dict) and known.get(key) != value
    }
    wanted = {
        "observedGeneration": observed.generation,
        "conditions": conditions.listed,
        **fields,
        **maps,
    }
    changed = status.subtree(observed, wanted)
    if changed is not None:
        changed = {**changed, "lastReconcileTime": rfc3339(now)}
    return Plan(
        stages=stages,
        status=changed,
        events=tuple(conditions.events),
        requeue_after_s=timers.next_s,
    )
