"""Executes a ScaleOut: new workers start, then the launcher learns of them.

The order makes each step safe against a restart of the GlobalManager: `addPods` of the ScaleOut,
`targetWorkers` of the job, the pods, the script, the list of hosts. A ScaleOut that gives up takes
its workers out of `targetWorkers` before it says that it has failed.
"""

from collections.abc import Sequence
from typing import Final

from edgeai.api.elastic import ScalerState
from edgeai.api.objects import is_being_deleted
from edgeai.api.status import mapping
from edgeai.api.training import MAX_REPLICAS
from edgeai.faults import pod_faults
from edgeai.faults.faults import STALLED
from globalmanager.kinds.elastic.trainingjob.scaling_step import (
    UNACCEPTED,
    ActiveScaler,
    Step,
    StepInputs,
    run_script,
)
from globalmanager.kinds.elastic.trainingjob.spec import MAX_INDEX
from globalmanager.kinds.elastic.trainingjob.table import Table, WorkerState
from globalmanager.kinds.shared import lifecycle, status
from globalmanager.kinds.shared.lifecycle import Timers

_MADE_AGAIN_AFTER_S: Final = 5.0
"""Least age of a failed new worker, unknown to the launcher, that is made again under its name."""


def step(inputs: StepInputs, current: ActiveScaler) -> Step:
    names = current.names(inputs.job.observed.ref.name)
    # The names stand in the status of the ScaleOut before the job wants the workers.
    if not (current.has_begun and names):
        return _choose(inputs, current)
    # The job has not given out the last of the indices: its status does not know the workers yet.
    if not inputs.has_enlisted(names):
        return _enlist(inputs, current, names)
    # An earlier plan took some of them out of the job again.
    if not inputs.table.workers.keys() >= frozenset(names):
        return _withdraw(inputs, current, names)
    problem = _problem(inputs, current, names)
    if not problem:
        return _await_workers(inputs, current, names)
    # First the job forgets the workers, and only then the ScaleOut fails: else a GlobalManager that
    # is killed in between would keep them. The message tells the next plan why.
    smaller = _smaller(inputs, names)
    if smaller != inputs.table:
        return Step(smaller, message=problem)
    return Step(inputs.table, ScalerState.FAILED, f"{problem}; {inputs.job.text} keeps its workers")


def _choose(inputs: StepInputs, current: ActiveScaler) -> Step:
    table, scaler = inputs.table, current.scaler
    if scaler is None:
        return Step(table, ScalerState.FAILED, UNACCEPTED)
    number, total = scaler.count, len(table.workers) + scaler.count
    most = inputs.job.spec.max_replicas
    # Refusals come before the choice, so a ScaleOut that cannot succeed uses up no index.
    problem = ""
    if inputs.limits_problem:
        problem = inputs.limits_problem
    elif most is not None and total > most:
        problem = f"{total} workers are more than maxReplicas, {most}"
    elif total > MAX_REPLICAS:
        problem = f"{total} workers are more than {MAX_REPLICAS}"
    elif table.next_index + number > MAX_INDEX + 1:
        problem = f"no index up to {MAX_INDEX} is left; create the job anew"
    elif inputs.job.spec.is_elastic:
        problem = "the job has spec.elastic and adds them itself; kubectl scale sets the limit"
    if problem:
        text = f"{inputs.job.text} has {len(table.workers)} workers, and {number} cannot be added"
        text = f"{text}: {problem}"
        return Step(table, ScalerState.FAILED, text)
    bigger = table.with_new_workers(inputs.job, number)
    names = bigger.target[len(table.workers) :]
    text = (
        f"adds {number} workers to {inputs.job.text}: {', '.join(names[:3])}{', …' * (number > 3)}"
    )
    return Step(table, ScalerState.SCALING, text, {"addPods": list(names)})


def _enlist(inputs: StepInputs, current: ActiveScaler, names: tuple[str, ...]) -> Step:
    """The job does not know the new workers yet. The ScaleOut chooses again when it is not the next
    one: a worker was replaced meanwhile, the limits were changed, or the status was written.
    """
    table = inputs.table
    if current.left_s(inputs.job.now) <= 0 or current.scaler is None:
        return Step(table, ScalerState.FAILED, _late(inputs, current, names))
    # A forged list of names must not make the job want workers that the spec does not ask for.
    choice = _choose(inputs, current)
    if choice.fields.get("addPods") != list(names):
        return choice
    return Step(table.with_new_workers(inputs.job, len(names), WorkerState.HIDDEN))


def _smaller(inputs: StepInputs, names: tuple[str, ...]) -> Table:
    """The table without the new workers. A worker that the launcher has is no new one, and the
    least number of workers stays, whatever the status of the ScaleOut says.
    """
    # The launcher may use a worker of its list already, and such a worker must not vanish.
    smaller = inputs.table.without(name for name in names if name not in inputs.hosts)
    return smaller if len(smaller.workers) >= inputs.least else inputs.table


def _await_workers(inputs: StepInputs, current: ActiveScaler, names: tuple[str, ...]) -> Step:
    """The new workers are wanted: wait for them, run the script, wait for the list of hosts."""
    hosts = frozenset(inputs.hosts)
    new = [name for name in names if name not in hosts]
    table = inputs.table.changed(new, WorkerState.HIDDEN)
    # The list of hosts has a new worker only when all of them run and the script has ended.
    if _late_workers(inputs, names):
        pods = [inputs.job.pods[name] for name in names if name in inputs.job.pods]
        deletions, waits = lifecycle.replacement(pods, inputs.job.now, after_s=_MADE_AGAIN_AFTER_S)
        return Step(table, deletions=deletions, timers=waits.add(current.left_s(inputs.job.now)))
    if current.script.text and not current.has_run_script:
        run = run_script(inputs, current, names)
        if run.is_done:
            text = f"the script has run for {', '.join(names)}"
            return Step(table, ScalerState.SCRIPT_EXECUTED, text)
        return Step(table, executions=run.executions, timers=inputs.give_up_timer(current))
    if not new:
        text = f"{inputs.job.text} has {len(table.workers)} workers"
        return Step(table, ScalerState.SUCCEEDED, text)
    # Nothing is hidden from now on: the list of hosts gets the new workers.
    return Step(inputs.table, timers=inputs.give_up_timer(current))


def _late_workers(inputs: StepInputs, names: Sequence[str]) -> list[str]:
    return [name for name in names if not inputs.table.workers[name].is_ready]


def _problem(inputs: StepInputs, current: ActiveScaler, names: tuple[str, ...]) -> str:
    """Why the ScaleOut gives up; "" while it does not."""
    if current.scaler is None:
        return UNACCEPTED
    late = _late_workers(inputs, names)
    if late and current.left_s(inputs.job.now) <= 0:
        return _late(inputs, current, late)
    if current.give_up_in_s(inputs.job.now) <= 0:
        return "the launcher did not take the new workers in time"
    if current.script.text and not current.has_run_script and not late:
        return run_script(inputs, current, names).problem
    return ""


def _withdraw(inputs: StepInputs, current: ActiveScaler, names: tuple[str, ...]) -> Step:
    """The new workers are not wanted: the ScaleOut has failed when their deletion has begun."""
    scaler_status, target = mapping(current.object.get("status")), inputs.table.workers
    smaller = _smaller(inputs, names)
    pods = [
        inputs.job.pods[name] for name in names if name in inputs.job.pods and name not in target
    ]
    undeleted = [pod for pod in pods if not is_being_deleted(pod)]
    waits = [current.end_left_s(pod, inputs.job.now) for pod in undeleted]
    if smaller != inputs.table or any(wait > 0 for wait in waits):
        return Step(smaller, timers=Timers().add(*waits))
    end = current.unended(undeleted) or "; the new workers were deleted"
    text = f"{scaler_status.get('message') or 'gave up'}{end}"
    return Step(inputs.table, ScalerState.FAILED, text)


def _late(inputs: StepInputs, current: ActiveScaler, names: Sequence[str]) -> str:
    """Which workers do not run in time, and why, in the words of scheduler, kubelet or API."""
    limit = current.script.timeout_s
    text = f"{', '.join(names[:3])} did not run within {limit} s (spec.timeout)"
    why = _obstacle(inputs, names)
    return f"{text}: {why}" if why else text


def _obstacle(inputs: StepInputs, names: Sequence[str]) -> str:
    """Why new workers do not run; "" when nobody says so."""
    pods = [inputs.job.pods[name] for name in names if name in inputs.job.pods]
    ending = map(pod_faults.deletion_fault, filter(is_being_deleted, pods))
    fault = pod_faults.first_fault(pods) or next(ending, None)
    if fault is not None:
        return fault.message
    # Where the API made no pod, only the condition of the job has its words.
    has_no_pod = any(name not in inputs.job.pods for name in names)
    stall = status.condition(inputs.job.observed, STALLED) if has_no_pod else {}
    return str(stall.get("message") or "")
