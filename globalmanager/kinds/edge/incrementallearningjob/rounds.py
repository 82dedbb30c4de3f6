"""The rounds of an IncrementalLearningJob: the next state, from the present one.

A round is decided by a trigger, trains, evaluates, and deploys its model if it is better. Each step
is a new State that the plan writes into .status. What a state demands (pods, the model of the
inference worker) comes with the plan after it, so a GlobalManager that is killed at any point goes
on from the state. Pure and total.
"""

from datetime import datetime
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from edgeai.api import pod_state
from edgeai.api.incrementallearningjob import (
    Deployed,
    IncrementalLearningJobSpec,
    Outcome,
    Round,
    Stage,
)
from edgeai.api.objects import is_being_deleted
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


class Rounds(NamedTuple):
    """Args:
    spec: accepted; all objects that it names exist
    state: in .status
    """

    observed: Observed
    spec: IncrementalLearningJobSpec
    state: State
    now: datetime

    def next_step(self) -> Step:
        if self.state.current is None:
            adapted = self._adapted()
            return Step(adapted) if adapted != self.state else self._watch()
        return self._go_on(self.state.current)

    def with_success(self) -> State:
        """The state that notes the success of the pod of the attempt, also while suspended: the pod
        may go before its report comes.
        """
        current = self.state.current
        pod = None if current is None else workers.pod_of(self.observed, current)
        if current is None or pod is None or current.succeeded or is_being_deleted(pod):
            return self.state
        if phase_of(pod) != "Succeeded":
            return self.state
        return replace(self.state, current=replace(current, succeeded=rfc3339(self.now)))

    # ---- between rounds -------------------------------------------------------------------------

    def _adapted(self) -> State:
        """The state for other data, fewer samples, and another Model or node than before. In a
        round, what the spec says now counts from the next one on.
        """
        progress, deployed = self.state.progress, self.state.deployed
        if progress.url != self._data_url:
            progress = replace(progress, url=self._data_url, hard=self._hard, valid=[])
            progress = replace(progress, trained=0, triggered=0)
        count = types.samples(self.observed, self.spec)
        # Somebody has removed samples: those that come now are new.
        if count is not None and count < progress.triggered:
            trained = min(progress.trained, count)
            valid = [part for part in progress.valid if part.end <= count]
            progress = replace(progress, triggered=count, trained=trained, valid=valid)
        # A node that has lost its ledger counts anew.
        progress = replace(progress, hard=min(progress.hard, self._hard))
        if progress.initial != self._initial_url:
            progress = replace(progress, initial=self._initial_url, models=[])
        if progress.node not in ("", self._node):
            models = [model for model in progress.models if not types.is_path(model.url)]
            progress = replace(progress, models=models)
            deployed = None if deployed and types.is_path(deployed.url) else deployed
        return replace(self.state, progress=replace(progress, node=self._node), deployed=deployed)

    def _watch(self) -> Step:
        state, trigger = self.state, self.spec.train_spec.trigger
        count = types.samples(self.observed, self.spec) or 0
        closed_s = triggers.closed_s(trigger.timer, self.now)
        # Whatever the trigger compares, a round needs new samples.
        if count <= state.progress.triggered or closed_s > 0:
            return Step(state, Timers().add(closed_s))
        is_met = triggers.is_met(trigger.condition, self._value(count))
        return Step(self._begun(count) if is_met else state)

    def _value(self, count: int) -> float:
        condition, progress = self.spec.train_spec.trigger.condition, self.state.progress
        if condition and condition.metric == HARD_EXAMPLES:
            return float(self._hard - progress.hard)
        train, _ = triggers.divided(progress.triggered, count, self.spec.dataset.train_prob)
        return float(train.end - train.start)

    def _begun(self, count: int) -> State:
        """The state in which the next round begins. All that it works on is written here."""
        observed, spec, progress = self.observed, self.spec, self.state.progress
        number = self.state.round + 1
        # A round that failed has trained on nothing, so its samples are of this one.
        train, valid = triggers.divided(progress.trained, count, spec.dataset.train_prob)
        format_ = types.model_format(observed, spec.initial_model.name)
        current = Round(
            number=number,
            stage=Stage.TRAIN,
            since=rfc3339(self.now),
            url=progress.url,
            node=self._node,
            format=refs.dataset_format(observed, spec.dataset.name),
            directory=f"{types.directory(observed, spec)}/{number}-0/model",
            train=[train],
            valid=[*progress.valid, valid][-MAX_EVALUATED_ROUNDS:],
            end=count,
            base=types.of_format(progress.models, format_) or progress.initial,
        )
        progress = replace(progress, triggered=count, hard=self._hard)
        return replace(self.state, round=number, current=current, progress=progress)

    @property
    def _hard(self) -> int:
        return total(status.status_of(self.observed), "hard") or 0

    @property
    def _node(self) -> str:
        return types.node_of(self.observed, self.spec, types.TRAIN)

    @property
    def _data_url(self) -> str:
        return refs.dataset_source(self.observed, self.spec.dataset.name, env="").url

    @property
    def _initial_url(self) -> str:
        return refs.model_source(self.observed, self.spec.initial_model.name, env="").url

    # ---- in a round -----------------------------------------------------------------------------

    def _go_on(self, current: Round) -> Step:
        change = self._change(current)
        if change:
            return Step(self._ended(current, OUTDATED, change))
        if current.stage is Stage.DEPLOY:
            return self._deploy(current)
        result = result_of(self.observed, current)
        if result is None:
            return self._of_pod(current)
        if current.stage is Stage.EVAL:
            return Step(self._evaluated(current, result))
        trained = replace(self._in_stage(current, Stage.EVAL), models=result.models)
        return Step(replace(self.state, current=trained))

    def _change(self, current: Round) -> str:
        """Why the round cannot go on as it began; "" when it can."""
        is_deploying, deployed = current.stage is Stage.DEPLOY, self.state.deployed
        model = deployed.model if deployed and is_deployed(self.state, current) else ""
        if current.node != self._node:
            is_left = not is_deploying or types.is_path(current.directory)
            return "the Dataset is on another node now" if is_left else ""
        if is_deploying:
            is_other = model not in ("", self.spec.deploy_spec.model.name)
            return "spec.deploySpec.model names another Model now" if is_other else ""
        if current.url != self._data_url:
            return "the Dataset has other data now"
        is_other = self.state.progress.initial != self._initial_url
        return "the initial Model is another one now" if is_other else ""

    def _in_stage(self, current: Round, stage: Stage) -> Round:
        return replace(current, stage=stage, attempt=0, since=rfc3339(self.now), succeeded="")

    def _ended(self, current: Round, reason: str, text: str) -> State:
        message = f"round {current.number}{text and ': '}{text}"
        last = Outcome(current.number, current.stage, reason, message, rfc3339(self.now))
        progress, deployed = self.state.progress, self.state.deployed
        if reason == OUTDATED:  # its samples, where they still are, begin the next round at once
            progress = replace(progress, triggered=progress.trained)
        if reason != "Deployed" and is_deployed(self.state, current):
            deployed = self.state.former
        ended = replace(self.state, current=None, last=last, former=None)
        return replace(ended, progress=progress, deployed=deployed)

    # ---- train and eval -------------------------------------------------------------------------

    def _of_pod(self, current: Round) -> Step:
        observed = self.observed
        noted = self.with_success()
        if noted != self.state:
            return Step(noted)
        pod, name = workers.pod_of(observed, current), workers.pod_name(observed, current)
        phase = "" if pod is None else phase_of(pod)
        left_s = 0.0
        if current.succeeded:
            left_s = self._left_s(current, NO_REPORT_S, current.succeeded)
            cause = f"pod {name} has succeeded and told of no model in {current.directory}"
        elif pod is not None and is_being_deleted(pod):
            return Step(self.state)  # how it ends says nothing: the attempt begins anew without it
        elif pod is not None and phase == "Failed":
            cause = f"pod {name} has failed{_last_words(pod)}"
        elif pod is not None and phase == "Pending":
            creation = pod["metadata"].get("creationTimestamp")
            left_s = self._left_s(current, STARTED_WITHIN_S, current.since, creation)
            cause = f"pod {name} has not started within {STARTED_WITHIN_S:.0f} s"
        else:
            return Step(self.state)
        if left_s > 0:
            return Step(self.state, Timers().add(left_s))
        return Step(self._failed(current, cause))

    def _left_s(self, current: Round, limit_s: float, *times: Any) -> float:
        """Seconds that the node of the round has from the latest of these times. Out of contact it
        has all of them: what it has to say waits there.
        """
        contact = self.observed.contacts.get(NodeName(current.node))
        if contact is None or not contact.connected:
            return limit_s
        since = max((contact.since, *filter(None, map(parse_time, times))))
        return pause_left_s(rfc3339(since), limit_s, self.now)

    def _failed(self, current: Round, cause: str) -> State:
        """The state after a failed attempt: the next attempt, or the end of the round."""
        attempt = current.attempt + 1
        if attempt == MAX_ATTEMPTS:
            text = f"{cause}, after {attempt} attempts"
            return self._ended(current, f"{current.stage}Failed", text)
        again = replace(self._in_stage(current, current.stage), attempt=attempt)
        if current.stage is Stage.TRAIN:
            # The former attempt may still write, and its report may still come.
            root = current.directory.removesuffix(f"-{current.attempt}/model")
            again = replace(again, directory=f"{root}-{attempt}/model")
        return replace(self.state, current=again)

    def _evaluated(self, current: Round, result: Result) -> State:
        """The state after the evaluation: the deployment, or the end of the round."""
        job = self._replace(state=replace(self.state, metrics=shown_metrics(result)))
        condition = self.spec.deploy_spec.trigger.condition
        value = triggers.value_of(condition.metric, result.new, result.former) if condition else 0.0
        if condition and value is None:
            # A model that cannot be compared, as one that has diverged, is no base for later ones.
            told = ", ".join(result.new) or "none"
            text = f"the evaluation told no {condition.metric} (it told: {told})"
            return job._ended(current, "MetricMissing", text)
        progress = replace(
            self.state.progress, trained=current.end, valid=current.valid, models=current.models
        )
        job = job._replace(state=replace(job.state, progress=progress))
        if condition and not triggers.is_met(condition, value or 0.0):
            text = f"{condition.metric} is {value:.6g}, not {triggers.shown(condition)}"
            return job._ended(current, "NotDeployed", text)
        return replace(job.state, current=self._in_stage(current, Stage.DEPLOY))

    # ---- the deployment -------------------------------------------------------------------------

    def _deploy(self, current: Round) -> Step:
        if not is_deployed(self.state, current):
            closed_s = triggers.closed_s(self.spec.deploy_spec.trigger.timer, self.now)
            waiting = Step(self.state, Timers().add(closed_s))
            return waiting if closed_s > 0 else Step(self._decided(current))
        if workers.has_deployed(self.observed, self.spec, self.state, current, self.now):
            return Step(self._ended(current, "Deployed", ""))
        fault, timers = self._deployment_fault(current)
        return Step(self._ended(current, "DeployFailed", fault) if fault else self.state, timers)

    def _deployment_fault(self, current: Round) -> tuple[str, Timers]:
        """Why the inference worker does not have the model; "": it may get it, so look again."""
        if workers.update_of(self.observed, current) == "failed":
            return "the inference worker could not load the model: see its log", Timers()
        node = types.node_of(self.observed, self.spec, types.INFERENCE)
        contact = self.observed.contacts.get(NodeName(node))
        if contact is not None and not contact.connected:
            return "", Timers()  # nobody knows what the worker does
        looks_s = workers.updated_s(self.spec)
        times = (parse_time(current.since), contact.since if contact else None)
        since, limit_s = max(filter(None, times), default=self.now), DEPLOYED_WITHIN_S + looks_s
        left_s = pause_left_s(rfc3339(since), limit_s, self.now)
        if left_s > 0:
            return "", Timers().add(left_s, pause_left_s(current.since, looks_s, self.now))
        return f"the inference worker has not taken the model within {limit_s:.0f} s", Timers()

    def _decided(self, current: Round) -> State:
        """The state in which the inference worker gets the model of the round."""
        model, time = self.spec.deploy_spec.model.name, rfc3339(self.now)
        url = types.of_format(current.models, types.model_format(self.observed, model))
        deployed = Deployed(current.number, model, url, time, current.models)
        current = replace(current, since=time, last_report=workers.last_report(self.observed))
        return replace(self.state, current=current, deployed=deployed, former=self.state.deployed)


def is_deployed(state: State, current: Round) -> bool:
    """Whether it was decided to deploy the model of the round."""
    return state.deployed is not None and state.deployed.round == current.number


def _last_words(pod: Object) -> str:
    for container in pod_state.container_states(pod):
        terminated = mapping(mapping(container.get("state")).get("terminated"))
        if terminated.get("exitCode") not in (None, 0):
            words = str(terminated.get("message") or "").strip()
            return f" with exit code {terminated['exitCode']}" + (words and f": {words[-300:]}")
    words = str(mapping(pod.get("status")).get("message") or "")
    return words and f": {words[:300]}"
