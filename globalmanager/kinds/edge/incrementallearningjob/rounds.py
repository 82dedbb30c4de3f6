"""The rounds of an IncrementalLearningJob: the next state, from the present one.

A round is decided by a trigger, trains, evaluates, and deploys its model if it is better. Each step
is a new State that the plan writes into .status. What a state demands (pods, the model of the
inference worker) comes with the plan after it, so a GlobalManager that is killed at any point goes
on from the state. Pure and total.
"""

from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from edgeai.api import pod_state
from edgeai.api.incrementallearningjob import (
    Deployed,
    IncrementalLearningJobSpec,
    Outcome,
    Progress,
    Round,
    Stage,
)
from edgeai.api.pod_state import phase_of
from edgeai.api.resources import Object
from edgeai.api.status import mapping, parse_time
from edgeai.ids import NodeName
from edgeai.times import rfc3339
from globalmanager.contract import Observed
from globalmanager.kinds.edge import references as refs
from globalmanager.kinds.edge.incrementallearningjob import spec as types
from globalmanager.kinds.edge.incrementallearningjob import triggers, workers
from globalmanager.kinds.edge.incrementallearningjob.spec import HARD_EXAMPLES
from globalmanager.kinds.edge.incrementallearningjob.state import (
    Result,
    State,
    result_of,
    shown_metrics,
)
from globalmanager.kinds.shared import status
from globalmanager.kinds.shared.lifecycle import Timers, pause_left_s
from globalmanager.kinds.shared.worker_status import total

MAX_ATTEMPTS: Final = 3
"""Of one stage. Then the round has failed."""
NO_REPORT_S: Final = 60.0
"""Seconds that the report of a worker that has succeeded may take from a node in contact."""
STARTED_WITHIN_S: Final = 1800.0
"""Seconds that a pod may take to start on a node in contact, with large images."""
DEPLOYED_WITHIN_S: Final = 600.0
"""Seconds after which a deployment has failed, besides those in which a hot worker looks for it.
Without a limit, a model that cannot be loaded would keep the next round from beginning."""
OUTDATED: Final = "RoundOutdated"
"""The end of a round whose data or node is no longer that of the job."""
MAX_EVALUATED_ROUNDS: Final = 5
"""The latest rounds whose samples for evaluation are used, as in Sedna."""


class Step(NamedTuple):
    """The next state; it is the present one where the job waits. `timers`: when to look again."""

    state: State
    timers: Timers = Timers()


def next_step(
    observed: Observed, spec: IncrementalLearningJobSpec, state: State, now: datetime
) -> Step:
    """Args: spec: accepted; all objects that it names exist"""
    adapted = _adapted(observed, spec, state)
    if adapted != state:
        return Step(adapted)
    if state.current is None:
        return _watch(observed, spec, state, now)
    change = _change(observed, spec, state, state.current)
    if change:
        text = f"round {state.current.number}: {change}"
        return Step(_ended(state, state.current, OUTDATED, text, now))
    if state.current.stage is Stage.DEPLOY:
        return _deploy(observed, spec, state, state.current, now)
    return _work(observed, spec, state, state.current, now)


# ---- between rounds -----------------------------------------------------------------------------


def _adapted(observed: Observed, spec: IncrementalLearningJobSpec, state: State) -> State:
    """The state for other data, fewer samples, and another Model or node than before."""
    progress, deployed = state.progress, state.deployed
    if state.current is not None:  # what the spec says now counts from the next round on
        return state
    url = refs.dataset_source(observed, spec.dataset.name, env="").url
    count = types.samples(observed, spec)
    if progress.url != url:
        empty = Progress(url=url, hard=_hard(observed))
        kept = {"initial": progress.initial, "models": progress.models, "node": progress.node}
        progress = msgspec.structs.replace(empty, **kept)
    # Somebody has removed samples: those that come now are new.
    if count is not None and count < progress.triggered:
        progress = msgspec.structs.replace(
            progress,
            triggered=count,
            trained=min(progress.trained, count),
            valid=[part for part in progress.valid if part.end <= count],
        )
    # A node that has lost its ledger counts anew.
    if _hard(observed) < progress.hard:
        progress = msgspec.structs.replace(progress, hard=_hard(observed))
    initial = refs.model_source(observed, spec.initial_model.name, env="").url
    if progress.initial != initial:
        progress = msgspec.structs.replace(progress, initial=initial, models=[])
    node = types.node_of(observed, spec, types.TRAIN)
    if progress.node not in ("", node):
        models = [model for model in progress.models if not types.is_path(model.url)]
        progress = msgspec.structs.replace(progress, models=models)
        deployed = None if deployed and types.is_path(deployed.url) else deployed
    progress = msgspec.structs.replace(progress, node=node)
    return msgspec.structs.replace(state, progress=progress, deployed=deployed)


def _watch(
    observed: Observed, spec: IncrementalLearningJobSpec, state: State, now: datetime
) -> Step:
    trigger = spec.train_spec.trigger
    count = types.samples(observed, spec) or 0
    closed_s = triggers.closed_s(trigger.timer, now)
    # Whatever the trigger compares, a round needs new samples.
    if count <= state.progress.triggered or closed_s > 0:
        return Step(state, Timers().add(closed_s))
    if not triggers.is_met(trigger.condition, _value(observed, spec, state, count)):
        return Step(state)
    return Step(_begun(observed, spec, state, count, now))


def _value(observed: Observed, spec: IncrementalLearningJobSpec, state: State, count: int) -> float:
    condition = spec.train_spec.trigger.condition
    if condition and condition.metric == HARD_EXAMPLES:
        return float(_hard(observed) - state.progress.hard)
    train, _ = triggers.divided(state.progress.triggered, count, spec.dataset.train_prob)
    return float(train.end - train.start)


def _hard(observed: Observed) -> int:
    return total(status.status_of(observed), "hard") or 0


def _begun(
    observed: Observed,
    spec: IncrementalLearningJobSpec,
    state: State,
    count: int,
    now: datetime,
) -> State:
    """The state in which the next round begins. All that it works on is written here."""
    progress, number = state.progress, state.round + 1
    # A round that failed has trained on nothing, so its samples are of this one.
    train, valid = triggers.divided(progress.trained, count, spec.dataset.train_prob)
    format_ = types.model_format(observed, spec.initial_model.name)
    current = Round(
        number=number,
        stage=Stage.TRAIN,
        since=rfc3339(now),
        url=progress.url,
        node=types.node_of(observed, spec, types.TRAIN),
        format=refs.dataset_format(observed, spec.dataset.name),
        directory=f"{types.directory(observed, spec)}/{number}-0/model",
        train=[train],
        valid=[*progress.valid, valid][-MAX_EVALUATED_ROUNDS:],
        end=count,
        base=types.of_format(progress.models, format_) or progress.initial,
    )
    progress = msgspec.structs.replace(progress, triggered=count, hard=_hard(observed))
    return msgspec.structs.replace(state, round=number, current=current, progress=progress)


# ---- train and eval -----------------------------------------------------------------------------


def _change(
    observed: Observed, spec: IncrementalLearningJobSpec, state: State, current: Round
) -> str:
    """Why the round cannot go on as it began; "" when it can."""
    data = refs.dataset_source(observed, spec.dataset.name, env="").url
    initial = refs.model_source(observed, spec.initial_model.name, env="").url
    is_deploying = current.stage is Stage.DEPLOY
    model = state.deployed.model if state.deployed and is_deployed(state, current) else ""
    if current.node != types.node_of(observed, spec, types.TRAIN):
        is_left = not is_deploying or types.is_path(current.directory)
        return "the Dataset is on another node now" if is_left else ""
    if is_deploying:
        is_other = model not in ("", spec.deploy_spec.model.name)
        return "spec.deploySpec.model names another Model now" if is_other else ""
    if current.url != data:
        return "the Dataset has other data now"
    return "the initial Model is another one now" if state.progress.initial != initial else ""


def is_deployed(state: State, current: Round) -> bool:
    """Whether it was decided to deploy the model of the round."""
    return state.deployed is not None and state.deployed.round == current.number


def _work(
    observed: Observed,
    spec: IncrementalLearningJobSpec,
    state: State,
    current: Round,
    now: datetime,
) -> Step:
    result = result_of(observed, current)
    if result is not None and current.stage is Stage.TRAIN:
        trained = _in_stage(current, Stage.EVAL, now)
        trained = msgspec.structs.replace(trained, models=result.models)
        return Step(msgspec.structs.replace(state, current=trained))
    if result is not None:
        return Step(_evaluated(observed, spec, state, current, result, now))
    return _of_pod(observed, state, current, now)


def _of_pod(observed: Observed, state: State, current: Round, now: datetime) -> Step:
    """What follows from the pod of a worker that has told no result."""
    pod, name = workers.pod_of(observed, current), workers.pod_name(observed, current)
    phase = "" if pod is None else phase_of(pod)
    if phase == "Succeeded" and not current.succeeded:
        # Written before it acts, because the pod may go before its report comes.
        succeeded = msgspec.structs.replace(current, succeeded=rfc3339(now))
        return Step(msgspec.structs.replace(state, current=succeeded))
    left_s = 0.0
    if current.succeeded:
        left_s = _left_s(observed, current, NO_REPORT_S, now, current.succeeded)
        cause = f"pod {name} has succeeded and told of no model in {current.directory}"
    elif pod is not None and phase == "Failed":
        cause = f"pod {name} has failed{_last_words(pod)}"
    elif pod is not None and phase == "Pending":
        creation = pod["metadata"].get("creationTimestamp")
        left_s = _left_s(observed, current, STARTED_WITHIN_S, now, current.since, creation)
        cause = f"pod {name} has not started within {STARTED_WITHIN_S:.0f} s"
    else:
        return Step(state)
    if left_s > 0:
        return Step(state, Timers().add(left_s))
    return Step(_failed(state, current, cause, now))


def _left_s(
    observed: Observed, current: Round, limit_s: float, now: datetime, *times: Any
) -> float:
    """Seconds that the node of the round has from the latest of these times. Out of contact it has
    all of them: what it has to say waits there.
    """
    contact = observed.contacts.get(NodeName(current.node))
    if contact is None or not contact.connected:
        return limit_s
    since = max((contact.since, *filter(None, map(parse_time, times))))
    return pause_left_s(rfc3339(since), limit_s, now)


def _failed(state: State, current: Round, cause: str, now: datetime) -> State:
    """The state after a failed attempt: the next attempt, or the end of the round."""
    attempt = current.attempt + 1
    if attempt < MAX_ATTEMPTS:
        again = msgspec.structs.replace(_in_stage(current, current.stage, now), attempt=attempt)
        if current.stage is Stage.TRAIN:
            # The former attempt may still write, and its report may still come.
            root = current.directory.removesuffix(f"-{current.attempt}/model")
            again = msgspec.structs.replace(again, directory=f"{root}-{attempt}/model")
        return msgspec.structs.replace(state, current=again)
    reason = f"{current.stage}Failed"
    message = f"round {current.number}: {cause}, after {attempt} attempts"
    return _ended(state, current, reason, message, now)


def _in_stage(current: Round, stage: Stage, now: datetime) -> Round:
    """The round at the beginning of the stage."""
    return msgspec.structs.replace(
        current, stage=stage, attempt=0, since=rfc3339(now), succeeded=""
    )


def _last_words(pod: Object) -> str:
    for container in pod_state.container_states(pod):
        terminated = mapping(mapping(container.get("state")).get("terminated"))
        if terminated.get("exitCode") not in (None, 0):
            words = str(terminated.get("message") or "").strip()
            return f" with exit code {terminated['exitCode']}" + (words and f": {words[-300:]}")
    words = str(mapping(pod.get("status")).get("message") or "")
    return words and f": {words[:300]}"


def _ended(state: State, current: Round, reason: str, message: str, now: datetime) -> State:
    last = Outcome(current.number, current.stage, reason, message, rfc3339(now))
    progress, deployed = state.progress, state.deployed
    if reason == OUTDATED:  # its samples, where they still are, begin the next round at once
        progress = msgspec.structs.replace(progress, triggered=progress.trained)
    if reason != "Deployed" and is_deployed(state, current):
        deployed = state.former
    return msgspec.structs.replace(
        state, current=None, last=last, progress=progress, deployed=deployed, former=None
    )


# ---- the deployment -----------------------------------------------------------------------------


def _evaluated(
    observed: Observed,
    spec: IncrementalLearningJobSpec,
    state: State,
    current: Round,
    result: Result,
    now: datetime,
) -> State:
    """The state after the evaluation: the deployment, or the end of the round."""
    state = msgspec.structs.replace(state, metrics=shown_metrics(result))
    condition = spec.deploy_spec.trigger.condition
    value = triggers.value_of(condition.metric, result.new, result.former) if condition else 0.0
    if condition and value is None:
        # A model that cannot be compared, as one that has diverged, is no base for the next round.
        told = ", ".join(result.new) or "none"
        text = f"the evaluation told no {condition.metric} (it told: {told})"
        return _ended(state, current, "MetricMissing", f"round {current.number}: {text}", now)
    progress = msgspec.structs.replace(
        state.progress, trained=current.end, valid=current.valid, models=current.models
    )
    state = msgspec.structs.replace(state, progress=progress)
    if condition and not triggers.is_met(condition, value or 0.0):
        text = f"{condition.metric} is {value:.6g}, not {triggers.shown(condition)}"
        return _ended(state, current, "NotDeployed", f"round {current.number}: {text}", now)
    return msgspec.structs.replace(state, current=_in_stage(current, Stage.DEPLOY, now))


def _deploy(
    observed: Observed,
    spec: IncrementalLearningJobSpec,
    state: State,
    current: Round,
    now: datetime,
) -> Step:
    if not is_deployed(state, current):
        closed_s = triggers.closed_s(spec.deploy_spec.trigger.timer, now)
        if closed_s > 0:
            return Step(state, Timers().add(closed_s))
        return Step(_decided(observed, spec, state, current, now))
    if workers.has_deployed(observed, spec, state, current, now):
        return Step(_ended(state, current, "Deployed", f"round {current.number}", now))
    contact = workers.inference_contact(observed, spec)
    if contact is not None and not contact.connected:
        return Step(state)  # nobody knows what the worker does
    looks_s = workers.updated_s(spec)
    times = (parse_time(current.since), contact.since if contact else None)
    since = max(filter(None, times), default=now)
    left_s = pause_left_s(rfc3339(since), DEPLOYED_WITHIN_S + looks_s, now)
    if left_s > 0:
        return Step(state, Timers().add(left_s, pause_left_s(current.since, looks_s, now)))
    text = (
        f"the inference worker has not taken the model within {DEPLOYED_WITHIN_S + looks_s:.0f} s"
    )
    return Step(_ended(state, current, "DeployFailed", f"round {current.number}: {text}", now))


def _decided(
    observed: Observed,
    spec: IncrementalLearningJobSpec,
    state: State,
    current: Round,
    now: datetime,
) -> State:
    """The state in which the inference worker gets the model of the round."""
    model = spec.deploy_spec.model.name
    deployed = Deployed(
        round=current.number,
        model=model,
        url=types.of_format(current.models, types.model_format(observed, model)),
        time=rfc3339(now),
    )
    current = msgspec.structs.replace(current, since=rfc3339(now))
    return msgspec.structs.replace(state, current=current, deployed=deployed, former=state.deployed)
