"""Plans what an IncrementalLearningJob needs next.

The plan writes the next state of the rounds (`rounds`) and acts on it only when it is in .status:
the state says what to do, after a kill at any point too.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from edgeai.api import pod_state
from edgeai.api.incrementallearningjob import IncrementalLearningJobSpec, Phase, Stage
from edgeai.api.objects import is_being_deleted
from edgeai.api.pod_state import phase_of
from edgeai.api.status import STARTING, WAITING, Finding, Truth
from edgeai.faults import pod_faults
from globalmanager.contract import Observed, Plan
from globalmanager.kinds.edge import references as refs
from globalmanager.kinds.edge import suspension
from globalmanager.kinds.edge.incrementallearningjob import (
    publishing,
    rounds,
    stages,
    triggers,
    workers,
)
from globalmanager.kinds.edge.incrementallearningjob import spec as types
from globalmanager.kinds.edge.incrementallearningjob.assignments import nodes
from globalmanager.kinds.edge.incrementallearningjob.rounds import Rounds, Step
from globalmanager.kinds.edge.incrementallearningjob.spec import LEARNING
from globalmanager.kinds.edge.incrementallearningjob.state import State, state_of
from globalmanager.kinds.shared import children, lifecycle, sedna, status
from globalmanager.kinds.shared.children import Stages
from globalmanager.kinds.shared.lifecycle import Timers
from globalmanager.kinds.shared.silent_nodes import silent_since
from globalmanager.kinds.shared.status import SUSPENDED

_PHASES: Final = {
    Stage.TRAIN: Phase.TRAINING,
    Stage.EVAL: Phase.EVALUATING,
    Stage.DEPLOY: Phase.DEPLOYING,
}
_NORMAL_ENDS: Final = ("Deployed", "NotDeployed", rounds.OUTDATED)


def plan(observed: Observed, now: datetime) -> Plan:
    if is_being_deleted(observed.object):
        return Plan()  # the garbage collector deletes the children by their owner references
    spec: IncrementalLearningJobSpec | None = observed.spec
    state = state_of(observed)
    # A wrong spec and a missing object stop no worker, and begin and end no stage.
    if observed.invalid is not None:
        findings = (status.rejected(observed.invalid), refs.UNRESOLVED)
        return _concluded(observed, state, findings, now)
    assert spec is not None  # `read` has given it, or `invalid`
    obstacles = types.obstacles(observed, spec)
    if obstacles:
        findings = (status.accepted(), refs.resolved(obstacles))
        return _concluded(observed, state, findings, now)
    is_suspended = suspension.is_suspended(observed)
    job = Rounds(observed, spec, state, now)
    published = publishing.noted(observed, spec, state)
    if published != state:
        step = Step(published)
    elif is_suspended:
        step = Step(job.with_success())
    else:
        step = job.next_step()
    forbidden = tuple(types.forbidden(observed, workers.urls(spec, step.state)))
    findings = (status.accepted(), refs.resolved(forbidden))
    if step.state != state:
        # First the decision. What follows from it comes with the next plan.
        decided = _concluded(observed, step.state, findings, now)
        events = (*decided.events, *publishing.events(state, step.state))
        return msgspec.structs.replace(decided, events=events, is_decision=True)
    if forbidden:
        return _concluded(observed, state, findings, now, timers=step.timers)
    desired = workers.desired(observed, spec, state, now)
    actions = children.reconcile(
        observed, desired, workers.OWNS, exempt=workers.kept(observed, state)
    )
    publication = () if is_suspended else tuple(publishing.patches(observed, spec, state))
    timers = step.timers
    if state.current is not None:
        timers = timers.add(workers.retry_left_s(state.current, now))
    return _concluded(observed, state, findings, now, (*actions, publication), timers)


def _concluded(
    observed: Observed,
    state: State,
    findings: tuple[Finding, Finding],
    now: datetime,
    actions: Stages | None = None,
    timers: Timers = Timers(),  # noqa: B008 - frozen
) -> Plan:
    is_suspended = suspension.is_suspended(observed)
    if actions is None:  # the inference worker goes on
        pods_of_rounds = lifecycle.own_pods(observed) if is_suspended else []
        actions = (lifecycle.clean_up(pods_of_rounds),)
    # Attempts that failed are over.
    pods = (pod for pod in observed.pods if phase_of(pod) != "Failed" and silent_since(pod) is None)
    examination = pod_faults.examine(pods, now)
    learning = _learning(observed, state, findings, examination)
    phase = _PHASES[state.current.stage] if state.current else Phase.WATCHING
    phase = Phase.SUSPENDED if is_suspended else phase
    if any(finding.truth is not Truth.TRUE for finding in findings):
        phase = Phase.PENDING if findings[0].truth is Truth.TRUE else Phase.INVALID
    conclusion = lifecycle.conclude(
        observed,
        now,
        findings=[*findings, learning, *suspension.findings(observed)],
        phase=sedna.phase(observed, phase),
        nodes=nodes(observed),
        fields={
            **msgspec.to_builtins(state),
            "active": sum(map(pod_state.is_active, observed.pods)),
            "failed": sum(phase_of(pod) == "Failed" for pod in observed.pods),
        },
        examination=examination,
        stages=tuple(stage for stage in actions if stage),
        timers=timers,
    )
    return stages.with_conditions(observed, state, conclusion, now)


def _learning(
    observed: Observed,
    state: State,
    findings: Sequence[Finding],
    examination: pod_faults.Examination,
) -> Finding:
    cause = next((finding for finding in findings if finding.truth is not Truth.TRUE), None)
    if cause is not None:
        return Finding(LEARNING, Truth.FALSE, WAITING, f"see condition {cause.type}")
    if suspension.is_suspended(observed):
        return Finding(LEARNING, Truth.FALSE, SUSPENDED, "the job is suspended")
    fault = observed.refusal or next(iter(examination.faults), None)
    if fault is not None:
        return Finding(LEARNING, Truth.FALSE, fault.reason, fault.message)
    if state.current is not None:
        return _in_round(observed, state)
    last = state.last
    if last is not None and last.reason not in _NORMAL_ENDS:
        text = f"{last.message}; the next round begins with new samples"
        return Finding(LEARNING, Truth.FALSE, last.reason, text)
    return _watching(observed)


def _in_round(observed: Observed, state: State) -> Finding:
    assert state.current is not None
    number, stage = state.current.number, state.current.stage
    pod = workers.pod_of(observed, state.current)
    timer = observed.spec.deploy_spec.trigger.timer
    if stage is Stage.DEPLOY and timer and not rounds.is_deployed(state, state.current):
        text = f"round {number}, which is deployed between {timer.start} and {timer.end} UTC"
        return Finding(LEARNING, Truth.TRUE, str(_PHASES[stage]), text)
    if stage is Stage.DEPLOY or (pod is not None and phase_of(pod) == "Running"):
        return Finding(LEARNING, Truth.TRUE, str(_PHASES[stage]), f"round {number}")
    attempt = state.current.attempt + 1
    text = f"round {number}: the {stage.lower()} worker is starting (attempt {attempt})"
    return Finding(LEARNING, Truth.FALSE, STARTING, text)


def _watching(observed: Observed) -> Finding:
    """Without numbers: a message with them would be another write for each new sample."""
    spec: IncrementalLearningJobSpec = observed.spec
    name, trigger = spec.dataset.name, spec.train_spec.trigger
    if types.samples(observed, spec) is None:
        text = f"Dataset {name} has no number of samples: see its condition Counted"
        return Finding(LEARNING, Truth.FALSE, "NotCounted", text)
    condition = triggers.shown(trigger.condition) if trigger.condition else "new samples"
    timer = f" between {trigger.timer.start} and {trigger.timer.end} UTC" if trigger.timer else ""
    return Finding(LEARNING, Truth.TRUE, "Watching", f"Dataset {name}, for {condition}{timer}")
