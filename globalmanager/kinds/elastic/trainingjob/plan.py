"""plan of a TrainingJob: workers, then a launcher that trains on them, until the launcher ends.

`states` has the state machine, `changes` has the changes of the children. A plan first writes its
decisions into the status: the wanted workers, and how often the launcher was started. Only the next
plan changes the children. So a GlobalManager that is killed between the two goes on with the same
decisions. These actions rest on no decision and go out at once: adoptions, new scalers, the status
of scalers, their scripts, and deletions of pods that give up their names or their room. Source of
the order of the steps: AliyunContainerService/et-operator,
pkg/controllers/trainingjob_controller.go.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from edgeai.api import pod_state
from edgeai.api.elastic import MAY_SCALE
from edgeai.api.objects import is_being_deleted
from edgeai.api.status import Truth
from edgeai.times import rfc3339
from globalmanager.contract import Event, Observed, Plan, Severity
from globalmanager.kinds.elastic.trainingjob import (
    changes,
    hosts,
    invalid,
    phases,
    replacement,
    room,
    scalers,
    snapshot,
    stall,
    workers,
)
from globalmanager.kinds.elastic.trainingjob.hosts import HostList, next_list
from globalmanager.kinds.elastic.trainingjob.replacement import Replacement
from globalmanager.kinds.elastic.trainingjob.scalers import Scaling
from globalmanager.kinds.elastic.trainingjob.scaling_step import StepInputs
from globalmanager.kinds.elastic.trainingjob.snapshot import KIND, STATES, ElasticSnapshot
from globalmanager.kinds.elastic.trainingjob.spec import TrainingJob, is_suspended
from globalmanager.kinds.elastic.trainingjob.states import (
    ENDS,
    JobState,
    Launcher,
    MachineInputs,
    states_ahead,
)
from globalmanager.kinds.elastic.trainingjob.table import Table, WorkerState, observe
from globalmanager.kinds.shared import children, lifecycle, status
from globalmanager.kinds.shared.job_conditions import Conditions
from globalmanager.kinds.shared.job_faults import stall_suspension
from globalmanager.kinds.shared.job_plan import written_plan
from globalmanager.kinds.shared.lifecycle import Timers

_IDLE: Final = (JobState.CREATED, JobState.SUSPENDED, *ENDS)
_AT_WORK: Final = tuple(state for state in STATES if state not in _IDLE)
"""The conditions that a suspension makes False."""


def plan(observed: Observed, now: datetime) -> Plan:
    if is_being_deleted(observed.object):
        return Plan()
    state = snapshot.state_of(observed)
    # A terminal state is absorbing, whatever an edit of the spec asks for.
    if state in ENDS:
        return _after_the_end(observed, now)
    conditions = Conditions(observed, KIND, now, states=STATES)
    is_new = lifecycle.is_new(observed)
    # Of a job that has started, other numbers of workers ask for a scaler, which names the fault.
    fault = observed.invalid or (observed.spec.start_fault if is_new else None)
    if fault is not None and is_new:
        return invalid.refused(observed, fault, conditions, now)
    restarts = snapshot.count_in(observed, "restartCount")
    pods = workers.present(observed)
    spec = observed.spec if fault is None else invalid.readable(observed.object)
    job = ElasticSnapshot(observed, spec, now, state, conditions, restarts, pods)
    if fault is not None:
        invalid.tell(job, fault)
    if _is_suspended(job):
        return _suspended(job)
    # The launcher of a job that an edit made invalid works on, and its end ends the job.
    return _living(job) if fault is None else invalid.until_the_end(job)


def _is_suspended(job: ElasticSnapshot) -> bool:
    """A launcher that has succeeded before the suspension began ends the job."""
    has_succeeded = snapshot.launcher_of(job) is Launcher.SUCCEEDED
    is_wanted = is_suspended(job.observed.object)
    return is_wanted and (job.state is JobState.SUSPENDED or not has_succeeded)


# ---- a job that lives ---------------------------------------------------------------------------


class _Decision(NamedTuple):
    """What a plan decides about a job that lives."""

    start: str
    replacements: Replacement
    scaling: Scaling
    """Its table is the last one."""
    state: JobState
    restarts: int
    may_launch: bool
    host_list: HostList
    """The list of hosts that the launcher has."""
    next_hosts: HostList
    """The list of hosts that the launcher gets."""
    timers: Timers
    """Wait until the list of hosts changes again by time alone."""


def _living(job: ElasticSnapshot) -> Plan:
    decision = _decision(job)
    replacements, scaling, host_list = decision.replacements, decision.scaling, decision.host_list
    recorded = status.status_of(job.observed)
    # The next plan cleans up, and tells scalers and users that the job is not scaled any more.
    if decision.state in ENDS:
        job.conditions.events.extend((*replacements.events, *_outside_limits(job, scaling.table)))
        observed_replicas = {"observedReplicas": recorded.get("observedReplicas")}
        fields = _fields(job, decision, host_list) | observed_replicas
        return written_plan(job.observed, job.conditions, fields, job.now)
    # Whether the status already has the decisions on which the actions rest.
    is_written = recorded.get("targetWorkers") == list(scaling.table.target)
    is_written = is_written and decision.restarts == job.restarts
    stages, timers = children.new_pods_last((), scaling.independent_actions), Timers()
    if is_written:
        host_list = decision.next_hosts
        stages, timers = changes.living_job_changes(
            job, decision.state, scaling, host_list, may_launch=decision.may_launch
        )
    if decision.state is JobState.RUNNING:
        phases.follow_joining(job, scaling.table, host_list.hosts)
    stall_timers = stall.stall(job, scaling.table, scaling.problem)
    for more in (decision.timers, replacements.timers, scaling.timers, stall_timers):
        timers = timers.add(*more.waits_s)
    job.conditions.events.extend((*replacements.events, *scaling.events))
    job.conditions.events.extend(_outside_limits(job, scaling.table))
    fields = {**_fields(job, decision, host_list), **scaling.fields}
    plan = written_plan(job.observed, job.conditions, fields, job.now, stages=stages, timers=timers)
    # The next step of a scaler rests on the scaler's status. Pods that give up their names or their
    # room go at once: no decision of this plan depends on them.
    before = (*scaling.stages, *((replacements.deletions,) if replacements.deletions else ()))
    return msgspec.structs.replace(
        plan,
        stages=(*before, *plan.stages),
        executions=scaling.executions,
        is_decision=not is_written,
    )


def _decision(job: ElasticSnapshot) -> _Decision:
    """One rule after the other: `replacement` (with `room`) and `scalers` change the table of
    workers, `states` the phase and the restarts, `hosts` the launcher's list, one after the other.
    """
    observed = job.observed
    start = job.conditions.resume(job.text)
    # The list of hosts of an earlier launcher does not hold for a launcher that is still to come.
    # After a suspension that was taken back at once, the launcher still runs, and has its list.
    is_before_launcher = job.state is JobState.SUSPENDED or job.state in changes.BEFORE_LAUNCHER
    launcher = snapshot.launcher_pod(observed)
    has_list = not is_before_launcher or (launcher is not None and pod_state.is_active(launcher))
    host_list = hosts.current_hosts(observed) if has_list else HostList()
    unfinished = scalers.unfinished(observed, start)
    table = observe(job, host_list.present_and_former, scalers.reserved(observed, unfinished))
    # Lost workers go first: a scaler counts, and chooses from, the workers that stay.
    replacements = replacement.replace(job, table)
    step_inputs = StepInputs(job, replacements.table, host_list.hosts, table.next_index)
    scaling = scalers.execute(step_inputs, unfinished, may_begin=job.state in MAY_SCALE)
    # The state and the list of hosts follow from the workers that the job wants from now on.
    table = scaling.table
    inputs = _machine_inputs(job, table, is_scaling=bool(scaling.current))
    state, restarts = job.state, job.restarts
    # Several states can pass in one plan. Each gets its condition and its event.
    for state in states_ahead(job.state, inputs):
        restarts += state is JobState.RESTARTING
        phases.enter(job, state, inputs, table)
    rows = table.workers.values()
    # Horovod hangs after some changes of its hosts, so the list may follow the workers later.
    following = next_list(
        host_list,
        desired=[row.name for row in rows if row.is_host],
        ready=[row.name for row in rows if row.is_new_host],
        has_launcher=launcher is not None,
        now=job.now,
    )
    next_hosts = hosts.with_former_hosts(following.list, host_list, table.target)
    timers = Timers().add(following.wait_s)
    may_launch = inputs.are_enough_ready
    return _Decision(
        start, replacements, scaling, state, restarts, may_launch, host_list, next_hosts, timers
    )


def _machine_inputs(job: ElasticSnapshot, table: Table, *, is_scaling: bool) -> MachineInputs:
    rows, enough = table.workers.values(), table.enough(job.spec)
    rows_with_pod = [row for row in rows if row.pod is not None and not row.is_being_deleted]
    # The cluster may refuse the pods that an elastic job does not need for its start.
    enough_pods = enough if job.spec.is_elastic else len(rows)
    return MachineInputs(
        are_workers_created=len(rows_with_pod) >= enough_pods,
        are_enough_ready=sum(row.is_ready for row in rows) >= enough,
        cannot_start=len(rows) - len(table.bucket(WorkerState.TERMINAL)) < enough,
        launcher=snapshot.launcher_of(job),
        may_restart=job.restarts < job.spec.restarts,
        is_scaling=is_scaling,
    )


def _fields(job: ElasticSnapshot, decision: _Decision, host_list: HostList) -> dict[str, Any]:
    """The fields of .status. Args: host_list: the list of hosts after this plan"""
    scaling, state = decision.scaling, decision.state
    return {
        "phase": str(state),
        "startTime": decision.start,
        "completionTime": rfc3339(job.now) if state in ENDS else None,
        "restartCount": decision.restarts or None,
        "targetWorkers": list(scaling.table.target),
        "nextWorkerIndex": scaling.table.next_index,
        "currentScaler": scaling.current or None,
        **decision.replacements.fields,
        "currentWorkers": [] if state in changes.BEFORE_LAUNCHER else list(host_list.hosts),
        "replicaStatuses": snapshot.numbers(job.observed, job.pods),
    }


def _outside_limits(job: ElasticSnapshot, table: Table) -> Iterator[Event]:
    """An event about an edit of the limits, which change no worker, to exclude their number."""
    spec, number = job.spec, len(table.workers)
    is_known = status.status_of(job.observed).get("observedGeneration") == job.observed.generation
    if is_known or spec.limits_fault is not None or spec.is_elastic:
        return
    if spec.min_replicas is not None and number < spec.min_replicas:
        problem, remedy = f"below minReplicas, {spec.min_replicas}", "ScaleOut"
    elif spec.max_replicas is not None and number > spec.max_replicas:
        problem, remedy = f"above maxReplicas, {spec.max_replicas}", "ScaleIn"
    else:
        return
    message = f"{job.text} has {number} workers, {problem}, and keeps them; apply a {remedy}"
    yield Event(Severity.WARNING, f"{KIND}OutsideLimits", message)


# ---- a job that is suspended, or has ended ------------------------------------------------------


def _suspended(job: ElasticSnapshot) -> Plan:
    """The status of a suspended job keeps the wanted workers, so the job resumes in its size. An
    elastic job resumes with the workers that its launcher needs (`room`).
    """
    message = f"{job.text} is suspended."
    if job.state is JobState.NEW:
        job.conditions.set(JobState.CREATED, f"{job.text} {phases.MESSAGES[JobState.CREATED]}")
    for state in _AT_WORK:
        if job.conditions.is_true(state):
            job.conditions.set(state, message, truth=Truth.FALSE, cause="Suspended")
    job.conditions.set(JobState.SUSPENDED, message)
    fields: dict[str, Any] = {
        "phase": str(JobState.SUSPENDED),
        "currentScaler": None,
        "currentWorkers": [],
        **room.at_rest(job.observed, job.pods),
        "replicaStatuses": snapshot.numbers(job.observed, job.pods),
    }
    deletions = lifecycle.deletions(job.observed)
    # The launcher goes first, so none finds in a job that resumes that its list lost all workers.
    launcher_ref = snapshot.launcher_ref(job.observed)
    first = tuple(deletion for deletion in deletions if deletion.ref == launcher_ref)
    others = tuple(deletion for deletion in deletions if deletion.ref != launcher_ref)
    # Written before the first deletion, else a restarted GlobalManager takes the pods for lost.
    stages = scalers.queued(job.observed, job.now)
    if job.state is JobState.SUSPENDED:
        stages = (*(stage for stage in (first, others) if stage), *stages)
    timers = stall_suspension(lifecycle.own_pods(job.observed), job.conditions, job.now)
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
        "replicaStatuses": snapshot.numbers(observed, pods),
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
    recorded = status.status_of(observed).get("observedReplicas")
    if spec is None or type(recorded) is not int or recorded == spec.replicas:
        return recorded, ()
    text = f"{KIND} {observed.ref.name}"
    message = f"{text} has ended and is not scaled to {spec.replicas} workers; create it anew"
    return spec.replicas, (Event(Severity.WARNING, f"{KIND}NotScaled", message),)
