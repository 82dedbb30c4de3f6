"""A TrainingJob whose spec cannot be read.

A job that never started has failed. A job that an edit made wrong stays as it is until the spec is
corrected or the job is suspended, with condition Stalled. Its launcher works on, and ends the job.
"""

from datetime import datetime
from typing import Final

from edgeai.api.resources import Object
from edgeai.api.specs import InvalidSpec
from edgeai.api.status import MAX_MESSAGE_CHARS, mapping
from edgeai.api.training import CleanPods, RestartPolicy
from edgeai.api.trainingjob import AttachMode, JobRestartPolicy
from edgeai.faults.faults import job_fault
from edgeai.times import rfc3339
from globalmanager.contract import Event, Observed, Plan, Severity
from globalmanager.kinds.elastic.trainingjob import phases, snapshot, table
from globalmanager.kinds.elastic.trainingjob.snapshot import KIND, ElasticSnapshot
from globalmanager.kinds.elastic.trainingjob.spec import DEFAULT_BACKOFF_LIMIT, TrainingJob
from globalmanager.kinds.elastic.trainingjob.states import (
    ENDS,
    JobState,
    Launcher,
    MachineInputs,
    states_ahead,
)
from globalmanager.kinds.shared import status
from globalmanager.kinds.shared.job_conditions import Conditions
from globalmanager.kinds.shared.job_plan import written_plan
from globalmanager.kinds.shared.lifecycle import Timers

INVALID_SPEC: Final = "InvalidSpec"
"""Reason of the condition Stalled after an edit that makes the spec of a started job wrong."""


def refused(observed: Observed, error: InvalidSpec, conditions: Conditions, now: datetime) -> Plan:
    """A job that never started has failed."""
    message = f"{KIND} {observed.ref.name} has failed because the spec is invalid: {error}"
    conditions.set(JobState.FAILED, message, cause="FailedValidation")
    fields = {"phase": str(JobState.FAILED), "completionTime": rfc3339(now)}
    return written_plan(observed, conditions, fields, now)


def readable(object_: Object) -> TrainingJob:
    """What the end of the job needs of an unreadable spec. The templates are empty. Total."""
    spec = mapping(object_.get("spec"))
    policy, limit, clean = (
        spec.get(key) for key in ("restartPolicy", "backoffLimit", "cleanPodPolicy")
    )
    is_limit = type(limit) is int and limit >= 0
    # A policy that cannot be read may be OnFailure, and a job that has failed never runs again.
    is_final = policy in (None, JobRestartPolicy.NEVER)
    return TrainingJob(
        # Nothing is made from these values: the job stays as it is until the spec is corrected.
        launcher={},
        worker={},
        worker_bytes=0,
        replicas=0,
        worker_policy=RestartPolicy.NEVER,
        attach_mode=AttachMode.SSH,
        slots=1,
        clean_pods=CleanPods(clean) if clean in list(CleanPods) else CleanPods.RUNNING,
        restarts=0 if is_final else int(str(limit)) if is_limit else DEFAULT_BACKOFF_LIMIT,
    )


def tell(job: ElasticSnapshot, error: InvalidSpec) -> None:
    """The condition Stalled, and one event for each edit."""
    # The colon ends what the condition is about, so another wrong value is another condition.
    text = f"{error.path} {error.problem}: {error.remedy}; {job.text} stays as it is"
    # The time of this reason decides when a missing launcher counts as lost.
    if snapshot.is_launcher_missing(job):
        name = snapshot.launcher_ref(job.observed).name
        text = f"pod {name}: it is not there any more; {text}"
        job.conditions.stall([job_fault(snapshot.LAUNCHER_MISSING, text)])
    else:
        job.conditions.stall([job_fault(INVALID_SPEC, text)])
    # The event below tells the same fault once for each edit.
    job.conditions.events.clear()
    if status.status_of(job.observed).get("observedGeneration") != job.observed.generation:
        message = f"{job.text} stays as it is because the spec is invalid: {error}"
        message = message[:MAX_MESSAGE_CHARS]
        job.conditions.events.append(Event(Severity.WARNING, f"{KIND}FailedValidation", message))


def until_the_end(job: ElasticSnapshot) -> Plan:
    """The end of the job with its launcher's, unless this may start again after a correction."""
    launcher = snapshot.launcher_of(job)
    inputs = MachineInputs(launcher=launcher, may_restart=job.restarts < job.spec.restarts)
    states = tuple(states_ahead(job.state, inputs))
    # An end makes no children, so it needs no spec that can be read.
    if states and states[-1] in ENDS:
        workers = table.recorded(job.observed, job.spec)
        for state in states:
            phases.enter(job, state, inputs, workers)
        fields = {"phase": str(states[-1]), "completionTime": rfc3339(job.now)}
        return written_plan(job.observed, job.conditions, fields, job.now)
    # No object changes at the moment from which the launcher counts as lost.
    is_awaited = launcher is Launcher.PENDING and snapshot.is_launcher_missing(job)
    left_s = snapshot.missing_left_s(job, snapshot.LAUNCHER_MISSING) if is_awaited else None
    timers = Timers().add(left_s)
    return written_plan(job.observed, job.conditions, {}, job.now, timers=timers)
