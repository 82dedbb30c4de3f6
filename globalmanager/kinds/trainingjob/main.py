"""plan of a TrainingJob: workers, then a launcher that trains on them, until the launcher ends.

`states` has the state machine, `changes` has the changes of the children. A plan first writes its
decisions into the status: the wanted workers, and how often the launcher was started. Only the next
plan acts on them. So a GlobalManager that is killed between the two goes on with the same
decisions. Source of the order of the steps: AliyunContainerService/et-operator,
pkg/controllers/trainingjob_controller.go.
"""

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from edgeai.times import rfc3339
from globalmanager.contract import Event, Observed, Plan, Severity
from globalmanager.kinds.trainingjob import (
    changes,
    hosts,
    invalid,
    phases,
    present,
    replacement,
    room,
    scalers,
    scaling,
    workers,
)
from globalmanager.kinds.trainingjob.present import KIND, STATES, Present
from globalmanager.kinds.trainingjob.replacement import Replacement
from globalmanager.kinds.trainingjob.scalers import Scaling
from globalmanager.kinds.trainingjob.scaling import Size
from globalmanager.kinds.trainingjob.scaling_step import View
from globalmanager.kinds.trainingjob.states import ENDS, Launcher, Situation, State, path
from globalmanager.kinds.trainingjob.types import TrainingJob
from globalmanager.rules import children, faults, lifecycle, pod_faults, status
from globalmanager.rules.elastic.host_list import HostList, next_list
from globalmanager.rules.faults import Fault, job_fault
from globalmanager.rules.lifecycle import Timers
from globalmanager.rules.objects import is_being_deleted
from globalmanager.rules.status import Truth
from globalmanager.rules.training import stalls
from globalmanager.rules.training.changes import suspended_job_changes
from globalmanager.rules.training.conditions import Conditions
from globalmanager.rules.training.plan import written_plan

TOO_FEW_WORKERS: Final = "TooFewWorkers"
"""Reason of the condition Stalled of an elastic job that cannot have minReplicas workers."""
_MAY_SCALE: Final = (State.RUNNING, State.SCALING)
"""The states in which a scaler can begin."""
_SCALE_IN_FAILED: Final = "ScaleInFailed"
"""Reason of the condition Stalled while an elastic job is above its limit."""
_MAX_NAMED: Final = 3  # workers in one message
_AT_WORK: Final = (
    State.WORKERS_CREATED,
    State.WORKERS_READY,
    State.LAUNCHER_CREATED,
    State.RUNNING,
    State.SCALING,
    State.RESTARTING,
)
"""The conditions that a suspension makes False."""


def plan(observed: Observed, now: datetime) -> Plan:
    """The next steps of the job."""
    if is_being_deleted(observed.object):
        return Plan()
    state = present.state_of(observed)
    if state in ENDS:
        return _after_the_end(observed, now)
    conditions = Conditions(observed, KIND, now, states=STATES)
    is_new = invalid.is_new(observed)
    fault = observed.invalid or (observed.spec.start_fault if is_new else None)
    if fault is not None and is_new:
        return invalid.refused(observed, fault, conditions, now)
    restarts = present.restarts_of(observed)
    pods = workers.present(observed)
    spec = observed.spec if fault is None else invalid.readable(observed.object)
    job = Present(observed, spec, now, state, conditions, restarts, pods)
    if fault is not None:
        invalid.tell(job, fault)
    if _is_suspended(job):
        return _suspended(job)
    return _living(job) if fault is None else invalid.until_the_end(job)


def _is_suspended(job: Present) -> bool:
    """A launcher that has succeeded before the suspension began ends the job."""
    has_succeeded = present.launcher_of(job) is Launcher.SUCCEEDED
    return job.spec.is_suspended and (job.state is State.SUSPENDED or not has_succeeded)


# ---- a job that lives ---------------------------------------------------------------------------


def _living(job: Present) -> Plan:
    observed = job.observed
    started = _start_time(job)
    is_new = job.state is State.SUSPENDED or job.state in changes.BEFORE_LAUNCHER
    listed = HostList() if is_new else hosts.listed(observed)
    known = scaling.known_size(observed, job.spec)
    waiting = scalers.unfinished(observed, started)
    held = scalers.held(observed, waiting)
    replaced = replacement.of(job, known, listed.had, held=held)
    launcher = present.launcher_of(job)
    view = View(
        observed,
        job.spec,
        job.now,
        replaced.size,
        ready=present.ready_workers(job.pods),
        listed=listed.hosts,
        launcher=present.launcher_pod(observed) if launcher is Launcher.RUNNING else None,
        pods=job.pods,
        known_index=known.next_index,
    )
    scaled = scalers.of(view, waiting, may_begin=job.state in _MAY_SCALE)
    situation = _situation(job, scaled, replaced, view.ready)
    state, restarts = job.state, job.restarts
    for state in path(job.state, situation):
        restarts += state is State.RESTARTING
        phases.enter(job, state, situation, replaced)
    unwanted = replaced.spent | scaled.leaving
    following = next_list(
        listed,
        wanted=[name for name in scaled.size.target if name not in unwanted],
        ready=view.ready - scaled.withheld - replaced.withheld,
        has_launcher=present.launcher_pod(observed) is not None,
        now=job.now,
    )
    host_list = hosts.remembering(following.list, listed, scaled.size.target)
    lives = state not in ENDS
    acts = lives and _is_written(job, scaled.size, restarts)
    stages, timers = (
        changes.living_job_changes(
            job,
            state,
            scaled.size,
            host_list,
            # A worker that the launcher had and that a scaler names is not made again.
            missing={
                *replaced.missing,
                *replaced.paused,
                *held.intersection(listed.had),
                *scaled.leaving,
            },
            may_launch=situation.are_enough_ready,
            added_by=scaled.added_by,
            others=scaled.others,
        )
        if acts
        else (children.new_pods_last((), scaled.others), Timers())
    )
    shown = host_list if acts else listed
    fields = {
        "phase": str(state),
        "startTime": started,
        "completionTime": rfc3339(job.now) if state in ENDS else None,
        "restartCount": restarts or None,
        **scaled.size.fields,
        **replaced.fields,
        **scaled.fields,
        "currentWorkers": [] if state in changes.BEFORE_LAUNCHER else list(shown.hosts),
        "replicaStatuses": present.numbers(observed, job.pods),
    }
    stalled = _stall(job, scaled, replaced) if lives else Timers()
    waits = (*replaced.timers.waits_s, *scaled.timers.waits_s, *stalled.waits_s)
    timers = timers.add(following.wait_s, *waits)
    job.conditions.events.extend((*replaced.events, *(scaled.events if lives else ())))
    job.conditions.events.extend(_outside_limits(job, scaled.size))
    written = written_plan(observed, job.conditions, fields, job.now, stages=stages, timers=timers)
    if not lives:
        return written
    before = (*scaled.stages, *((replaced.deletions,) if replaced.deletions else ()))
    return msgspec.structs.replace(
        written,
        stages=(*before, *written.stages),
        executions=scaled.executions,
        is_decision=not acts,
    )


def _start_time(job: Present) -> str:
    """When the job was first worked on, or was last resumed."""
    if job.conditions.is_true(State.SUSPENDED):
        message = f"{job.text} is resumed."
        job.conditions.set(State.SUSPENDED, message, truth=Truth.FALSE, cause="Resumed")
        return rfc3339(job.now)
    return str(lifecycle.first_time(job.observed, "startTime", job.now, is_due=True))


def _outside_limits(job: Present, size: Size) -> Iterator[Event]:
    """An event about an edit of the limits that excludes the present number of workers. Such limits
    hold for scalers, and change no worker by themselves.
    """
    spec, number = job.spec, len(size.target)
    is_known = status.of(job.observed).get("observedGeneration") == job.observed.generation
    if is_known or spec.limits_fault is not None or spec.max_queued is not None:
        return
    if spec.min_replicas is not None and number < spec.min_replicas:
        problem, remedy = f"below minReplicas, {spec.min_replicas}", "ScaleOut"
    elif spec.max_replicas is not None and number > spec.max_replicas:
        problem, remedy = f"above maxReplicas, {spec.max_replicas}", "ScaleIn"
    else:
        return
    message = f"{job.text} has {number} workers, {problem}, and keeps them; apply a {remedy}"
    yield Event(Severity.WARNING, f"{KIND}OutsideLimits", message)


def _is_written(job: Present, size: Size, restarts: int) -> bool:
    """Whether the status already has the decisions on which the actions rest."""
    told = status.of(job.observed)
    return told.get("targetWorkers") == list(size.target) and restarts == job.restarts


def _situation(
    job: Present, scaled: Scaling, replaced: Replacement, ready: Collection[str]
) -> Situation:
    pods, size = job.pods, scaled.size
    enough = present.enough(job.spec, size)
    created = [name for name in size.target if name in pods and not is_being_deleted(pods[name])]
    # The cluster may refuse the pods that an elastic job does not need for its start.
    needed = len(size.target) if job.spec.max_queued is None else enough
    return Situation(
        are_workers_created=len(created) >= needed,
        are_enough_ready=sum(name in ready for name in size.target) >= enough,
        cannot_start=len(size.target) - len(replaced.spent) < enough,
        launcher=present.launcher_of(job),
        may_restart=job.restarts < job.spec.restarts,
        is_scaling=scaled.is_active,
    )


def _stall(job: Present, scaled: Scaling, replaced: Replacement) -> Timers:
    """Set the condition Stalled when the job does not get on. Returns: waits until a change"""
    if present.is_launcher_missing(job):
        pod = present.launcher_ref(job.observed)
        message = f"pod {pod.name}: it is not there any more"
        return _missing(job, present.LAUNCHER_MISSING, message)
    if replaced.missing:
        names = ", ".join(replaced.missing[:_MAX_NAMED])
        count = len(replaced.missing)
        message = f"workers: {count} pods are not there any more, for example {names}"
        return _missing(job, present.WORKERS_MISSING, message)
    fault = stalls.refusal_fault(job.observed, job.conditions)
    fault = fault or _workers_fault(job, scaled, replaced)
    if fault is not None:
        job.conditions.stall([fault])
        return Timers()
    target = scaled.size.target
    pods = [job.pods[name] for name in target if name in job.pods]
    pods = [pod for pod in pods if not room.is_queued(job, pod)]
    launcher = present.launcher_pod(job.observed)
    if launcher is not None and not stalls.is_first_failure(launcher):
        pods.insert(0, launcher)
    examination = pod_faults.examine(pods, job.now)
    successors = [name for name in target if name not in replaced.paused]
    failure, end_s = replacement.last_failure(job, successors, examination.faults)
    job.conditions.stall(faults.in_order((*failure, *examination.faults)))
    return Timers().add(examination.next_s, end_s)


def _workers_fault(job: Present, scaled: Scaling, replaced: Replacement) -> Fault | None:
    """Why the job cannot have the number of workers that it is to have."""
    fault, size = job.spec.limits_fault, scaled.size
    if fault is not None:
        text = f"{fault.path} {fault.problem}: {fault.remedy}; {job.text} goes on as it is"
        return job_fault(invalid.INVALID_SPEC, text)
    count, template_bytes = len(size.target), job.spec.worker_bytes
    is_complete = all(name in job.pods for name in size.target)
    if not is_complete and workers.are_too_large(job.observed, job.spec, count):
        return stalls.size_fault(
            job.observed,
            "spec.etReplicaSpecs.worker.template",
            count,
            template_bytes,
            total_bytes=count * template_bytes,
        )
    usable = len(size.target) - len(replaced.spent)
    if job.spec.max_queued is not None and usable < present.enough(job.spec, size):
        return job_fault(TOO_FEW_WORKERS, f"workers: {phases.too_few(job, replaced)}")
    return job_fault(_SCALE_IN_FAILED, scaled.problem) if scaled.problem else None


def _missing(job: Present, reason: str, message: str) -> Timers:
    job.conditions.stall([job_fault(reason, message)])
    return Timers().add(present.missing_left_s(job, reason))


# ---- a job that is suspended, or has ended ------------------------------------------------------


def _suspended(job: Present) -> Plan:
    """The status of a suspended job keeps the wanted workers, so the job resumes in its size."""
    message = f"{job.text} is suspended."
    if job.state is State.NEW:
        job.conditions.set(State.CREATED, f"{job.text} {phases.MESSAGES[State.CREATED]}")
    for state in _AT_WORK:
        if job.conditions.is_true(state):
            job.conditions.set(state, message, truth=Truth.FALSE, cause="Suspended")
    job.conditions.set(State.SUSPENDED, message)
    fields: dict[str, Any] = {
        "phase": str(State.SUSPENDED),
        "currentScaler": None,
        "currentWorkers": [],
        **room.at_rest(job.observed, job.pods),
        "replicaStatuses": present.numbers(job.observed, job.pods),
    }
    deletions = suspended_job_changes(job.observed)
    # The launcher goes first. If the job resumes before all pods have gone, no launcher finds that
    # its list has lost all workers.
    launcher_ref = present.launcher_ref(job.observed)
    first = tuple(deletion for deletion in deletions if deletion.ref == launcher_ref)
    others = tuple(deletion for deletion in deletions if deletion.ref != launcher_ref)
    # The state is written before the first deletion, else a restarted GlobalManager would take the
    # pods for lost.
    deletion_stages = (first, others) if job.state is State.SUSPENDED else ()
    stages = (*(stage for stage in deletion_stages if stage), *scalers.queued(job.observed))
    timers = stalls.stall_suspension(lifecycle.own_pods(job.observed), job.conditions, job.now)
    return written_plan(job.observed, job.conditions, fields, job.now, stages=stages, timers=timers)


def _after_the_end(observed: Observed, now: datetime) -> Plan:
    spec: TrainingJob | None = observed.spec
    readable = invalid.readable(observed.object) if spec is None else spec
    deletions = changes.ended_job_changes(observed, readable.clean_pods)
    words, events = scalers.refused(observed, now)
    replicas, not_scaled = _not_scaled(observed, spec)
    pods = workers.present(observed)
    fields: dict[str, Any] = {
        "observedReplicas": replicas,
        "replicaStatuses": present.numbers(observed, pods),
        "currentWorkers": [],
        "currentScaler": None,
        **room.at_rest(observed, pods),
    }
    return Plan(
        stages=tuple(stage for stage in (deletions, words) if stage),
        status=status.replacing_subtree(observed, fields),
        events=(*events, *not_scaled),
    )


def _not_scaled(observed: Observed, spec: TrainingJob | None) -> tuple[Any, tuple[Event, ...]]:
    """(the number of workers in the spec that is dealt with, the event about an edit of it)"""
    known = status.of(observed).get("observedReplicas")
    if spec is None or type(known) is not int or known == spec.replicas:
        return known, ()
    text = f"{KIND} {observed.ref.name}"
    message = f"{text} has ended and is not scaled to {spec.replicas} workers; create it anew"
    return spec.replicas, (Event(Severity.WARNING, f"{KIND}NotScaled", message),)
