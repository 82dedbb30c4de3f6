"""The condition and the event of each state that a TrainingJob enters."""

from collections.abc import Collection, Mapping
from typing import Final

from edgeai.api.status import Truth
from edgeai.faults import pod_faults
from globalmanager.kinds.elastic.trainingjob import room, snapshot
from globalmanager.kinds.elastic.trainingjob.snapshot import ElasticSnapshot
from globalmanager.kinds.elastic.trainingjob.spec import MAX_INDEX
from globalmanager.kinds.elastic.trainingjob.states import JobState, Launcher, MachineInputs
from globalmanager.kinds.elastic.trainingjob.table import Table, WorkerState

MESSAGES: Final[Mapping[JobState, str]] = {
    JobState.CREATED: "is created.",
    JobState.WORKERS_CREATED: "has the pods of all workers.",
    JobState.WORKERS_READY: "has enough workers that are ready.",
    JobState.LAUNCHER_CREATED: "has the pod of its launcher.",
    JobState.RUNNING: "is running.",
    JobState.SCALING: "is scaling.",
    JobState.RESTARTING: "is restarting.",
    JobState.SUCCEEDED: "is successfully completed.",
    JobState.FAILED: "has failed.",
}


def enter(job: ElasticSnapshot, state: JobState, inputs: MachineInputs, table: Table) -> None:
    """Set the condition of a state that the job enters."""
    message = f"{job.text} {MESSAGES[state]}"
    if state is JobState.FAILED:
        # Else a job that has failed would say for ever that it scales.
        _end_scaling(job)
        message = f"{job.text} has failed because {_failure(job, inputs, table)}"
    elif state is JobState.RESTARTING:
        message = f"{job.text} is restarting because {_failure(job, inputs, table)}"
    elif state is JobState.WORKERS_CREATED and job.conditions.is_true(JobState.WORKERS_READY):
        text = f"{job.text} has lost a worker before its launcher started."
        job.conditions.set(JobState.WORKERS_READY, text, truth=Truth.FALSE, cause="WorkerLost")
    else:  # a job that restarts goes on with its scaler
        _end_scaling(job)
    if state is JobState.SCALING:  # the last condition from now on, so Running cannot change
        follow_joining(job, table, table.target)
    job.conditions.set(state, message)


def follow_joining(job: ElasticSnapshot, table: Table, hosts: Collection[str]) -> None:
    """Let the condition Running name workers that run and are not among the launcher's hosts."""
    ready = [row.name for row in table.workers.values() if row.is_host and row.is_new_host]
    joining = ", ".join(name for name in ready if name not in hosts)
    more = f" Its launcher gets within seconds: {joining}" if joining else ""
    message = f"{job.text} {MESSAGES[JobState.RUNNING]}{more}"
    job.conditions.set(JobState.RUNNING, message, cause="WorkersJoining" if joining else "")


def _end_scaling(job: ElasticSnapshot) -> None:
    if job.conditions.is_true(JobState.SCALING):
        text = f"{job.text} is not scaling any more."
        job.conditions.set(JobState.SCALING, text, truth=Truth.FALSE, cause="Scaled")


def _failure(job: ElasticSnapshot, inputs: MachineInputs, table: Table) -> str:
    """Why the launcher has failed or could not start."""
    limit = f" It was started again {job.restarts} times." if job.restarts else ""
    if inputs.launcher is Launcher.LOST:
        return f"the pod of its launcher is gone.{limit}"
    if inputs.launcher is Launcher.FAILED:
        pod = snapshot.launcher_pod(job.observed)
        fault = pod_faults.first_fault([pod]) if pod is not None else None
        cause = f" {fault.message}" if fault is not None else ""
        return f"its launcher failed.{limit}{cause}"
    return too_few(job, table)


def too_few(job: ElasticSnapshot, table: Table) -> str:
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
