"""plan of a training job: its replicas run until the job succeeds or fails; then its pods go.

`snapshot` has what a plan reads from the job, `changes` has the changes of pods and Services.
Source of the rules' order: kubeflow/training-operator 1.9, pkg/controller.v1/common/job.go.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from edgeai.api.objects import is_being_deleted
from edgeai.api.resources import PODS
from edgeai.api.specs import InvalidSpec
from edgeai.api.status import MAX_MESSAGE_CHARS, Truth, left_s, mapping
from edgeai.api.training import CleanPods, RestartScope
from edgeai.faults import pod_faults
from edgeai.faults.summary import OPERATOR
from edgeai.times import rfc3339
from globalmanager.contract import Create, Event, Observed, Plan, Severity
from globalmanager.kinds.shared import lifecycle, status
from globalmanager.kinds.shared.children import Stages
from globalmanager.kinds.shared.job_conditions import ENDS, Conditions, State
from globalmanager.kinds.shared.job_faults import stall_suspension
from globalmanager.kinds.shared.job_plan import written_plan
from globalmanager.kinds.shared.lifecycle import Timers
from globalmanager.kinds.shared.queued_pods import forgotten
from globalmanager.kinds.training import changes, gangs, replicas, snapshot, stalls
from globalmanager.kinds.training import history as histories
from globalmanager.kinds.training.framework import Counts, KubeflowJob, readable_policy
from globalmanager.kinds.training.history import Failure
from globalmanager.kinds.training.snapshot import Snapshot


def plan(observed: Observed, now: datetime) -> Plan:
    # As with the training operator, a job with a foreign manager gets no pods and no status.
    if not is_ours(observed):
        return Plan()
    # A terminal state is absorbing: only the cleanup and the time to live are left.
    if lifecycle.has_ended(observed, ENDS):
        return _after_the_end(observed, now)
    kind = observed.type.kind
    conditions = Conditions(observed, kind, now)
    # Created is the first condition or missing: the training operator sometimes loses it.
    if {one["type"] for one in conditions.entries} <= {State.CREATED}:
        conditions.set(State.CREATED, f"{kind} {observed.ref.name} is created.")
    if (
        _is_managed_elsewhere(observed)
        and status.status_of(observed).get("observedGeneration") != observed.generation
    ):
        conditions.events.append(_manager_kept(observed))
    spec: KubeflowJob | None = observed.spec
    error = observed.invalid if spec is None else spec.framework.fault(observed)
    if spec is not None and lifecycle.is_new(observed):
        error = error or spec.start_fault
    if spec is None or error is not None:
        assert error is not None  # a job has either a spec or the reason why it has none
        return _invalid(observed, error, conditions, now)
    members, pods = list(replicas.names(observed.ref.name, spec)), histories.pods_by_name(observed)
    history = histories.history_of(observed, spec)
    job = Snapshot(observed, spec, now, conditions, history, members, pods)
    # As upstream, suspension comes before the limits: a suspended job cannot exceed them.
    return _suspended(job) if spec.policy.suspend else _living(job)


def _invalid(observed: Observed, error: InvalidSpec, conditions: Conditions, now: datetime) -> Plan:
    """A job that never started has failed. Of a job that has started, an edit made the spec wrong,
    or another controller accepted the spec: the job stays as it is until the spec is corrected, and
    one event for each edit tells the fault. The operator's webhook refuses such an edit.
    """
    recorded, kind, name = status.status_of(observed), observed.type.kind, observed.ref.name
    if lifecycle.is_new(observed):
        message = f"{kind} {name} has failed because the spec is invalid: {error}"
        conditions.set(State.FAILED, message, cause="FailedValidation")
        return written_plan(observed, conditions, {"completionTime": rfc3339(now)}, now)
    if recorded.get("observedGeneration") == observed.generation:
        return Plan()
    message = f"{kind} {name} stays as it is because the spec is invalid: {error}"[
        :MAX_MESSAGE_CHARS
    ]
    event = Event(Severity.WARNING, f"{kind}FailedValidation", message)
    return Plan(status={"observedGeneration": observed.generation}, events=(event,))


def is_ours(observed: Observed) -> bool:
    """Whether the job is not being deleted, and not managed elsewhere, or has pods already."""
    is_elsewhere = _is_managed_elsewhere(observed) and not observed.children
    return not is_elsewhere and not is_being_deleted(observed.object)


def _is_managed_elsewhere(observed: Observed) -> bool:
    policy = mapping(mapping(observed.object.get("spec")).get("runPolicy"))
    return policy.get("managedBy") not in (None, "", OPERATOR)


def _manager_kept(observed: Observed) -> Event:
    """The event after an edit of managedBy. Nobody else would look after the pods that exist."""
    kind, name = observed.type.kind, observed.ref.name
    message = (
        f"spec.runPolicy.managedBy: is changed, but {kind} {name} has pods already and keeps its "
        f"manager; set it back to {OPERATOR}, or suspend the job before you change it"
    )
    return Event(Severity.WARNING, f"{kind}ManagedByChanged", message)


# ---- a job that runs ----------------------------------------------------------------------------


def _living(job: Snapshot) -> Plan:
    start_time = job.conditions.resume(job.text)
    counts = snapshot.counts(job)
    failed = histories.failures(job.observed, job.spec, job.history)
    # The end comes before all else: a job that is over must not make a pod again.
    ending = _ending(job, start_time, counts, failed)
    if ending is not None:
        state, message = ending
        job.conditions.set(state, message)
        job.conditions.events.extend(_exits(job, failed))
        fields = {"startTime": start_time, "completionTime": rfc3339(job.now)}
        replica_fields = {
            **snapshot.statuses(job, counts, state),
            **forgotten(job.observed),
        }
        return written_plan(job.observed, job.conditions, fields | replica_fields, job.now)
    # The status counts the restarts. Upstream counts those of present pods, so a pod that is made
    # again resets its share of the backoff limit (kubeflow/training-operator#2045).
    history = snapshot.history_after(job, failed)
    if history != job.history:
        retried = [one for one in failed if one.is_retryable]
        job.conditions.set(State.RESTARTING, _failed_text(job, retried, "is restarting because"))
        job.conditions.events.extend(_exits(job, retried))
    elif counts[job.spec.framework.deciding(job.spec)].active and not snapshot.is_restarting(job):
        job.conditions.set(State.RUNNING, f"{job.text} is running.")
    fields = {
        "startTime": start_time,
        **history.fields,
        **snapshot.statuses(job, counts),
        **snapshot.elastic(job),
    }
    # A failure is counted in the status before its pod goes: the pod is the only trace of it.
    stages, timers = changes.living_job_changes(job) if history == job.history else ((), Timers())
    stall, stall_timers = stalls.find(job)
    timers = timers.add(*stall_timers.waits_s)
    job.conditions.stall(stall)
    job.conditions.events.extend(_warnings(job, stages))
    # The plan asks for a wake-up itself: upstream a deadline never ends a job in which nothing else
    # happens (kubeflow/training-operator#3358).
    deadline = left_s(start_time, job.spec.policy.active_deadline_seconds, job.now)
    return written_plan(
        job.observed, job.conditions, fields, job.now, stages=stages, timers=timers.add(deadline)
    )


def _exits(job: Snapshot, failed: list[Failure]) -> Iterator[Event]:
    """An event for each exit code. The status changes in the same plan, so each comes once."""
    namespace = job.observed.ref.namespace
    for one in failed:
        if one.exit_code is not None:
            message = f"Pod: {namespace}.{one.name} exited with code {one.exit_code}"
            yield Event(Severity.NORMAL, "ExitedWithCode", message)


def _warnings(job: Snapshot, stages: Stages) -> Iterator[Event]:
    """Events about parts of the spec that have no effect."""
    yield from snapshot.not_elastic(job)
    if status.status_of(job.observed).get("observedGeneration") != job.observed.generation:
        yield from job.spec.framework.warnings(job.observed)
        if any(entry.template["spec"].get("restartPolicy") for entry in job.spec.replicas):
            message = "Restart policy in pod template overridden by restart policy in replica spec"
            yield Event(Severity.WARNING, "SetPodTemplateRestartPolicy", message)
    makes_pods = any(
        isinstance(entry, Create) and entry.type == PODS for s in stages for entry in s
    )
    if makes_pods:
        yield from gangs.scheduler_warning(job.observed, job.spec)


def _ending(
    job: Snapshot, start_time: str, counts: Mapping[str, Counts], failed: list[Failure]
) -> tuple[State, str] | None:
    """The final condition of the job and its message; None while the job goes on."""
    policy, framework = job.spec.policy, job.spec.framework
    # Success excludes failure. Upstream a chief's success beside a failed worker leaves both True.
    if framework.has_succeeded(job.spec, counts, job.history.finished):
        return State.SUCCEEDED, f"{job.text} is successfully completed."
    # Dynamic workers of a TFJob are tolerated: the others train on without them.
    final = [one for one in failed if not one.is_retryable and one.type not in job.spec.tolerant]
    if final:
        return State.FAILED, _failed_text(job, final, "has failed because")
    # As in the Kubeflow operator, the failure that reaches the limit ends the job, also of 0.
    limit = policy.backoff_limit
    if limit is not None and snapshot.history_after(job, failed).total >= max(limit, 1):
        reason = "it has reached the specified backoff limit"
        return State.FAILED, f"{job.text} has failed because {reason}"
    if left_s(start_time, policy.active_deadline_seconds, job.now) <= 0:
        reason = "it was active longer than specified deadline"
        return State.FAILED, f"{job.text} has failed because {reason}"
    return None


def _failed_text(job: Snapshot, failed: list[Failure], verb: str) -> str:
    """ "TFJob mnist has failed because 1 Worker replica(s) failed." with the first one's cause."""
    type_ = failed[0].type
    number = sum(one.type == type_ for one in failed)
    fault = pod_faults.first_fault([failed[0].pod])
    cause = f" {fault.message}" if fault is not None else ""
    return f"{job.text} {verb} {number} {type_} replica(s) failed.{cause}"


# ---- a job that is suspended, or has ended ------------------------------------------------------


def _suspended(job: Snapshot) -> Plan:
    message = f"{job.text} is suspended."
    for state in (State.RUNNING, State.RESTARTING):
        if job.conditions.is_true(state):
            job.conditions.set(state, message, truth=Truth.FALSE, cause="Suspended")
    job.conditions.set(State.SUSPENDED, message)
    if job.spec.policy.restart_scope is RestartScope.JOB:
        # All replicas start together, so after the suspension the finished ones run again too.
        job = job._replace(history=job.history._replace(finished=frozenset()))
    # The pods go after the status names the replicas that have finished: a GlobalManager that is
    # killed between the two steps knows them from the status alone, and the job may be resumed.
    recorded = status.status_of(job.observed).get("finished")
    is_recorded = recorded == job.history.fields["finished"]
    deletions = lifecycle.deletions(job.observed) if is_recorded else ()
    fields = {
        **job.history.fields,
        **snapshot.statuses(job, snapshot.counts(job)),
        **forgotten(job.observed),
    }
    timers = stall_suspension(lifecycle.own_pods(job.observed), job.conditions, job.now)
    stages = (deletions,) if deletions else ()
    return written_plan(job.observed, job.conditions, fields, job.now, stages=stages, timers=timers)


def _after_the_end(observed: Observed, now: datetime) -> Plan:
    spec: KubeflowJob | None = observed.spec
    policy = spec.policy if spec is not None else readable_policy(observed.object)
    ttl_s = policy.ttl_seconds_after_finished
    # The wait is part of the plan, so the deletion needs no event of another object. Upstream a job
    # once went seven hours late (kubeflow/training-operator#1533).
    expired, timers = lifecycle.deletion_after(observed, ttl_s, now, since=_ended_at(observed))
    if expired:
        return Plan(stages=(expired,))
    cleaned = spec.clean_pods if spec is not None else policy.clean_pod_policy or CleanPods.NONE
    deletions = changes.ended_job_changes(observed, cleaned)
    return Plan(stages=(deletions,) if deletions else (), requeue_after_s=timers.next_s)


def _ended_at(observed: Observed) -> Any:
    """When the job ended. The Kubeflow operator gives some failed jobs no completionTime."""
    ends = (status.condition(observed, end).get("lastTransitionTime") for end in ENDS)
    return status.status_of(observed).get("completionTime") or next(filter(None, ends), None)
