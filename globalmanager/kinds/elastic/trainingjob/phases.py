"""The condition and the event of each state that a TrainingJob enters."""

from collections.abc import Mapping
from typing import Final

from edgeai.api.status import Truth
from edgeai.faults import pod_faults
from globalmanager.kinds.elastic.trainingjob import present, room
from globalmanager.kinds.elastic.trainingjob.present import Present
from globalmanager.kinds.elastic.trainingjob.spec import MAX_INDEX
from globalmanager.kinds.elastic.trainingjob.states import Launcher, Situation, State
from globalmanager.kinds.elastic.trainingjob.table import Table, WorkerState

MESSAGES: Final[Mapping[State, str]] = {
    State.CREATED: "is created.",
    State.WORKERS_CREATED: "has the pods of all workers.",
    State.WORKERS_READY: "has enough workers that are ready.",
    State.LAUNCHER_CREATED: "has the pod of its launcher.",
    State.RUNNING: "is running.",
    State.SCALING: "is scaling.",
    State.RESTARTING: "is restarting.",
    State.SUCCEEDED: "is successfully completed.",
    State.FAILED: "has failed.",
}


def enter(job: Present, state: State, situation: Situation, table: Table) -> None:
    """Set the condition of a state that the job enters."""
    message = f"{job.text} {MESSAGES[state]}"
    if state is State.FAILED:
        # Else a job that has failed would say for ever that it scales.
        _end_scaling(job)
        message = f"{job.text} has failed because {_failure(job, situation, table)}"
    elif state is State.RESTARTING:
        message = f"{job.text} is restarting because {_failure(job, situation, table)}"
    elif state is State.WORKERS_CREATED and job.conditions.is_true(State.WORKERS_READY):
        # A worker was lost before the launcher could start.
        job.conditions.set(State.WORKERS_READY, message, truth=Truth.FALSE, cause="WorkerLost")
    else:  # a job that restarts goes on with its scaler
        _end_scaling(job)
    job.conditions.set(state, message)


def _end_scaling(job: Present) -> None:
    if job.conditions.is_true(State.SCALING):
        text = f"{job.text} is not scaling any more."
        job.conditions.set(State.SCALING, text, truth=Truth.FALSE, cause="Scaled")


def _failure(job: Present, situation: Situation, table: Table) -> str:
    """Why the launcher has failed or could not start."""
    limit = f" It was started again {job.restarts} times." if job.restarts else ""
    if situation.launcher is Launcher.LOST:
        return f"the pod of its launcher is gone.{limit}"
    if situation.launcher is Launcher.FAILED:
        pod = present.launcher_pod(job.observed)
        fault = pod_faults.first_fault([pod]) if pod is not None else None
        cause = f" {fault.message}" if fault is not None else ""
        return f"its launcher failed.{limit}{cause}"
    return too_few(job, table)


def too_few(job: Present, table: Table) -> str:
    """Why the job cannot get the workers that its launcher needs."""
    ended_pods = {
        worker.name: worker.pod
        for worker in table.bucket(WorkerState.TERMINAL)
        if worker.pod is not None
    }
    fault = pod_faults.first_fault(ended_pods[name] for name in sorted(ended_pods))
    least = table.enough(job.spec)
    text = f"{len(ended_pods)} workers ended, and the launcher needs {least}."
    if fault is not None:
        text += f" {fault.message}"
    if table.next_index > MAX_INDEX:
        text += f" {room.NO_INDEX}."
    return text
