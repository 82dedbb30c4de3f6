"""Executes a ScaleIn: the launcher forgets workers, they become idle, and then their pods end.

The order makes each step safe against a restart of the GlobalManager: `toDeletePods` of the
ScaleIn, script, list of hosts, `targetWorkers`, pods. Nothing is deleted until the fourth.
"""

from typing import Final

from edgeai.api.elastic import ScalerState
from edgeai.text import listing
from globalmanager.kinds.elastic.trainingjob import commands
from globalmanager.kinds.elastic.trainingjob.room import limit
from globalmanager.kinds.elastic.trainingjob.scaling_step import (
    UNACCEPTED,
    ActiveScaler,
    Step,
    StepInputs,
    run_script,
)
from globalmanager.kinds.elastic.trainingjob.table import WorkerState
from globalmanager.kinds.shared.lifecycle import Timers

# A ScaleIn may name a thousand workers, and a message must stay short.
_MAX_SHOWN: Final = 5


def step(inputs: StepInputs, current: ActiveScaler) -> Step:
    names = current.names(inputs.job.observed.ref.name)
    # The choice stands in the status of the ScaleIn before anything follows from it.
    if not (current.has_begun and names):
        return _choose(inputs, current)
    # Only workers that the job does not want any more lose their pods.
    if inputs.table.workers.keys().isdisjoint(names):
        return _await_end(inputs, current, names)
    return _release(inputs, current, names)


def _release(inputs: StepInputs, current: ActiveScaler, names: tuple[str, ...]) -> Step:
    """The workers are still wanted by the job: the launcher must let go of them first."""
    problem = _choice_problem(inputs, current, names)
    if problem:
        return _failed(inputs, problem)
    # The script comes first: it may tell the launcher's program that the workers go.
    if current.script.text and not current.has_run_script:
        return _run_script(inputs, current, names)
    draining = inputs.table.changed(names, WorkerState.DRAINING)
    # The launcher must not start a process on a worker that is about to end.
    if not frozenset(inputs.hosts).isdisjoint(names):
        if current.give_up_in_s(inputs.job.now) <= 0:
            return _failed(inputs, f"{inputs.job.text} has no other worker that runs")
        return Step(draining, timers=inputs.give_up_timer(current))
    if not current.has_run_script:
        text = f"the list of hosts has {listing(names, _MAX_SHOWN)} no more"
        return Step(draining, ScalerState.SCRIPT_EXECUTED, text)
    return _idle(inputs, current, names)


def _failed(inputs: StepInputs, problem: str) -> Step:
    """The end of a ScaleIn whose workers stay."""
    return Step(inputs.table, ScalerState.FAILED, f"{problem}; nothing was deleted")


def _choose(inputs: StepInputs, current: ActiveScaler) -> Step:
    table, scaler = inputs.table, current.scaler
    if scaler is None:
        return _failed(inputs, UNACCEPTED)
    # The et-operator takes names that match no worker for all workers, and deletes every one.
    unknown = [name for name in scaler.names if name not in table.workers]
    if unknown:
        strangers = listing(unknown, _MAX_SHOWN)
        problem = f"spec.toDelete.podNames: {strangers} is no worker of {inputs.job.text}"
    else:
        problem = _beyond_limits(inputs, scaler.count)
    if problem:
        return _failed(inputs, problem)
    # The workers that came last go first, so a job that grows and shrinks keeps its first ones.
    names = scaler.names or table.target[-scaler.count :]
    text = f"removes {listing(names, _MAX_SHOWN)} from {inputs.job.text}"
    return Step(table, ScalerState.SCALING, text, {"toDeletePods": list(names)})


def _beyond_limits(inputs: StepInputs, number: int) -> str:
    """Why this number of workers cannot go; "" when it can."""
    job, total, least = inputs.job, len(inputs.table.workers), inputs.least
    if inputs.limits_problem:
        return inputs.limits_problem
    if number >= total:
        return f"{job.text} has {total} workers, so {number} cannot go"
    if total - number < least:
        return f"{job.text} would have {total - number} workers, below minReplicas, {least}"
    # An elastic job fills up to its limit, so only workers above the limit stay away.
    if job.spec.is_elastic and total - number < limit(job.observed, job.spec):
        return f"{job.text} has spec.elastic and would replace them: use kubectl scale"
    return ""


def _choice_problem(inputs: StepInputs, current: ActiveScaler, names: tuple[str, ...]) -> str:
    """Why the choice holds no longer: an edit of spec, limits or status; "" when it holds."""
    scaler = current.scaler
    if scaler is None:
        return UNACCEPTED
    asked_for = frozenset(scaler.names or names)
    if asked_for != frozenset(names) or len(names) != scaler.count:
        return "status.toDeletePods has other workers than spec.toDelete asks for"
    return _beyond_limits(inputs, len(asked_for & inputs.table.workers.keys()))


def _run_script(inputs: StepInputs, current: ActiveScaler, names: tuple[str, ...]) -> Step:
    run = run_script(inputs, current, names)
    if run.is_done:
        text = f"the script has run for {listing(names, _MAX_SHOWN)}"
        table = inputs.table.changed(names, WorkerState.DRAINING)
        return Step(table, ScalerState.SCRIPT_EXECUTED, text)
    problem = run.problem
    if not problem and current.give_up_in_s(inputs.job.now) <= 0:
        problem = "no launcher could run the script in time"
    if problem:
        return _failed(inputs, problem)
    return Step(inputs.table, executions=run.executions, timers=inputs.give_up_timer(current))


def _idle(inputs: StepInputs, current: ActiveScaler, names: tuple[str, ...]) -> Step:
    """Wait until no process of the launcher works with the workers, then let go of them."""
    released = Step(inputs.table.without(names))
    if inputs.launcher is None:  # nobody works with the workers
        return released
    checks = commands.idle(inputs.launcher, names, current.script.timeout_s)
    executions = {current.key(inputs, f"idle-{n}"): check for n, check in enumerate(checks)}
    results = [inputs.job.observed.executions.get(key) for key in executions]
    # A worker that is busy until the end of the time goes all the same: the user asked for it.
    if all(one is not None and one.exit_code in (0, commands.STILL_BUSY) for one in results):
        return released
    # Each check ends by itself. Where no check is possible, the workers get the time instead.
    time_left_s = current.left_s(inputs.job.now)
    is_running = any(one is None for one in results)
    if (not is_running and time_left_s <= 0) or current.give_up_in_s(inputs.job.now) <= 0:
        return released
    waits = Timers().add(current.give_up_in_s(inputs.job.now) if is_running else time_left_s)
    table = inputs.table.changed(names, WorkerState.DRAINING)
    return Step(table, executions=executions, timers=waits)


def _await_end(inputs: StepInputs, current: ActiveScaler, names: tuple[str, ...]) -> Step:
    """The workers are no longer wanted: the ScaleIn is done once their pods are gone. It waits no
    longer than its timeout, because a pod with a finalizer or on a lost node may stay for ever.
    """
    pods = [inputs.job.pods[name] for name in names if name in inputs.job.pods]
    waits = [current.end_left_s(pod, inputs.job.now) for pod in pods]
    if any(wait > 0 for wait in waits):
        return Step(inputs.table, timers=Timers().add(*waits))
    text = f"{inputs.job.text} has {len(inputs.table.workers)} workers"
    return Step(inputs.table, ScalerState.SUCCEEDED, text + current.unended(pods))
