"""One scaler at one moment, and what its execution makes of the job.

`scalers`, `scale_out` and `scale_in` decide.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NamedTuple

from edgeai.api import deletions
from edgeai.api.elastic import WORKER, ScalerState
from edgeai.api.objects import is_being_deleted
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.specs import InvalidSpec, shown
from edgeai.api.status import left_s, mapping
from edgeai.faults import pod_faults
from edgeai.text import printable
from globalmanager.contract import Delete, Execution, Result
from globalmanager.kinds.elastic import scalers
from globalmanager.kinds.elastic.scaler_status import has_condition, state_of
from globalmanager.kinds.elastic.scalers import Scaler, Script
from globalmanager.kinds.elastic.trainingjob import commands, snapshot
from globalmanager.kinds.elastic.trainingjob.snapshot import ElasticSnapshot
from globalmanager.kinds.elastic.trainingjob.states import Launcher
from globalmanager.kinds.elastic.trainingjob.table import Table
from globalmanager.kinds.shared.lifecycle import Timers
from globalmanager.kinds.shared.replication import index_of

_GIVE_UP_S: Final = 60.0
"""After its two timeouts (start and script) a scaler that cannot go on ends this much later."""
# A script may write lines of any length, and the message goes into a status.
_MAX_LINE_CHARS: Final = 400
"""Of a script's output in a message."""

UNACCEPTED: Final = "the spec was changed and is not accepted any more"
"""Why a scaler fails whose spec was good when the scaler began."""


class StepInputs(NamedTuple):
    """What the execution of a scaler may depend on."""

    job: ElasticSnapshot
    table: Table
    hosts: Collection[str]
    """The list of hosts that the launcher has."""
    next_index: int
    """The index of the next new worker, as the status has it."""

    @property
    def launcher(self) -> Object | None:
        """The launcher's pod while it runs."""
        # A launcher that pends or ends runs no command.
        is_running = snapshot.launcher_of(self.job) is Launcher.RUNNING
        return snapshot.launcher_pod(self.job.observed) if is_running else None

    def has_enlisted(self, names: Collection[str]) -> bool:
        """Whether the job's status knows these workers, by their indices. False for no names."""
        job = self.job.observed.ref.name
        indices = [index_of(job, WORKER, name) for name in names]
        return bool(indices) and self.next_index > max(index or 0 for index in indices)

    def give_up_timer(self, current: "ActiveScaler") -> Timers:
        """The wait until the scaler gives up."""
        return Timers().add(current.give_up_in_s(self.job.now))

    @property
    def least(self) -> int:
        """Least number of workers that must stay."""
        # Horovod does not go on after a list without hosts.
        return max(self.job.spec.min_replicas or 1, 1)

    @property
    def limits_problem(self) -> str:
        """Why no scaler can change an elastic job; "" when scalers can."""
        fault = self.job.spec.limits_fault
        if not self.job.spec.is_elastic or fault is None:
            return ""
        return f"{fault.path} {fault.problem}; {fault.remedy}"


@dataclass(frozen=True)
class ActiveScaler:
    """A scaler that is not finished."""

    ref: ObjectRef
    object: Object
    job_start: str = ""
    """When the job was first worked on, or was last resumed."""

    @cached_property
    def scaler(self) -> Scaler | None:
        """None when the spec is wrong. Of thousands of scalers a plan reads only a few."""
        try:
            return scalers.read(self.ref.type, self.object)
        except InvalidSpec:
            return None

    @property
    def kind(self) -> str:
        return self.ref.type.kind

    @property
    def is_created(self) -> bool:
        """Whether the scaler waits for its turn. Until then its own kind writes its status."""
        # A scaler whose spec became wrong while it waits is refused by its own kind.
        return state_of(self.object) is ScalerState.CREATED and self.scaler is not None

    @property
    def has_begun(self) -> bool:
        return state_of(self.object) in (ScalerState.SCALING, ScalerState.SCRIPT_EXECUTED)

    @property
    def has_run_script(self) -> bool:
        return has_condition(self.object, ScalerState.SCRIPT_EXECUTED)

    @property
    def script(self) -> Script:
        # A scaler whose spec became wrong still has a timeout, the default, so it still ends.
        return self.scaler.script if self.scaler is not None else Script()

    def names(self, job: str) -> tuple[str, ...]:
        """The workers that come or go, as the status has them, in the order of their index."""
        state = mapping(self.object.get("status"))
        recorded = state.get("addPods" if self.kind == "ScaleOut" else "toDeletePods")
        entries = recorded if isinstance(recorded, list) else []
        # Anybody may write a status. A name that is no worker of the job must not decide anything.
        indices = {index_of(job, WORKER, name): name for name in entries if isinstance(name, str)}
        return tuple(indices[index] for index in sorted(i for i in indices if i is not None))

    def left_s(self, now: datetime) -> float:
        """Seconds of the timeout that are left. The time before the job was resumed does not count.
        A start ahead by more than the timeout is none, so that no status holds up the job.
        """
        since = mapping(self.object.get("status")).get("startTime")
        time_left_s = left_s(since, self.script.timeout_s, now, unknown=-math.inf)
        time_left_s = max(
            time_left_s, left_s(self.job_start, self.script.timeout_s, now, unknown=-math.inf)
        )
        # Clocks differ a little, but a time far ahead is forged.
        return time_left_s if time_left_s <= 2 * self.script.timeout_s else -math.inf

    def give_up_in_s(self, now: datetime) -> float:
        """Seconds until the scaler has taken longer than its steps can take: the start of its pods
        and its script, each within the timeout, and _GIVE_UP_S for what the engine needs.
        """
        return self.left_s(now) + self.script.timeout_s + _GIVE_UP_S

    def end_left_s(self, pod: Object, now: datetime) -> float:
        """Seconds for which the scaler still waits for the end of a pod: its timeout after the
        deletion began, and without one a timeout more than all other steps can take.
        """
        if not is_being_deleted(pod):
            return self.give_up_in_s(now) + self.script.timeout_s
        return deletions.end_left_s(pod, self.script.timeout_s, now)

    def unended(self, pods: Sequence[Object]) -> str:
        """The end of a message about pods that did not go in time; "" for none."""
        if not pods:
            return ""
        text = f"; but within {self.script.timeout_s} s (spec.timeout) {len(pods)} pods did not go"
        return f"{text}: {pod_faults.deletion_fault(pods[0]).message}"

    def key(self, inputs: StepInputs, step: str) -> str:
        """The key of an execution. A new launcher runs the command again."""
        pod = inputs.launcher["metadata"]["uid"] if inputs.launcher is not None else ""
        return f"{self.object['metadata']['uid']}/{step}/{pod}"


class Step(NamedTuple):
    """What the execution of a scaler makes of the job now."""

    table: Table
    state: ScalerState | None = None
    """The state that the scaler enters."""
    message: str = ""
    """Why; or, without a state, what `.status.message` of the scaler is to say."""
    fields: Mapping[str, Any] = {}
    """Further fields of the scaler's status."""
    deletions: tuple[Delete, ...] = ()
    executions: Mapping[str, Execution] = {}
    timers: Timers = Timers()


class ScriptRun(NamedTuple):
    """The run of a scaler's script. `problem` is "" unless the script has failed."""

    is_done: bool = False
    problem: str = ""
    executions: Mapping[str, Execution] = {}


def run_script(inputs: StepInputs, current: ActiveScaler, workers: Collection[str]) -> ScriptRun:
    """Run the script in the launcher, and wait for a launcher that runs."""
    if inputs.launcher is None:
        return ScriptRun()
    key = current.key(inputs, "script")
    execution = commands.script(
        inputs.launcher, current.script, tuple(workers), inputs.job.spec.slots
    )
    # A restarted GlobalManager has no results, so the script runs at least once.
    result = inputs.job.observed.executions.get(key)
    if result is None:
        return ScriptRun(executions={key: execution})
    problem = "" if result.exit_code == 0 else _problem(result, current.script)
    return ScriptRun(not problem, problem, {key: execution})


def _problem(result: Result, script: Script) -> str:
    name = shown(script.text)
    if result.fault is not None:
        return f"the script {name} could not run in the launcher: {result.message}"
    text = f"the script {name} ended in the launcher with exit code {result.exit_code}"
    # The output comes from the user's image, and terminals show the message.
    lines = [printable(line) for line in result.output.strip().splitlines()]
    return f"{text}: {lines[-1][:_MAX_LINE_CHARS]}" if lines else text
