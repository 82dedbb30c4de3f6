"""The conditions that clients of Sedna read, for jobs in group sedna.io.

They take the last condition as the present one. Sedna appends one with each step, without an end.
Here are two: how the stage before the present one ended, and what the present stage does.
"""

import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from edgeai.api.incrementallearningjob import Stage, TrainedModel
from edgeai.api.pod_state import phase_of
from edgeai.api.status import Finding, Truth
from edgeai.times import rfc3339
from globalmanager.contract import Observed, Plan
from globalmanager.kinds.edge.incrementallearningjob import triggers, workers
from globalmanager.kinds.edge.incrementallearningjob.state import State
from globalmanager.kinds.shared import sedna, status


class StageFinding(Finding, frozen=True):
    stage: Stage
    models: tuple[TrainedModel, ...] = ()
    """Of the round."""
    metrics: Mapping[str, float] = {}
    """Of these models."""


def with_conditions(observed: Observed, state: State, plan: Plan, now: datetime) -> Plan:
    if observed.type.group != sedna.GROUP or plan.status is None:
        return plan
    added = [_condition(observed, finding, now) for finding in _findings(observed, state)]
    fields = {**plan.status, "conditions": [*plan.status["conditions"], *added]}
    return msgspec.structs.replace(plan, status=status.subtree(observed, fields))


def _findings(observed: Observed, state: State) -> Iterator[StageFinding]:
    last, current = state.last, state.current
    if current is not None and current.stage is not Stage.TRAIN:
        is_trained = current.stage is Stage.EVAL
        stage, metrics = (Stage.TRAIN, {}) if is_trained else (Stage.EVAL, _metrics(state))
        text, models = f"round {current.number}", tuple(current.models)
        yield StageFinding("Completed", Truth.TRUE, "Completed", text, stage, models, metrics)
    elif last is not None:
        has_ended = last.reason in ("Deployed", "NotDeployed", "MetricMissing")
        type_ = "Completed" if has_ended else "Failed"
        ended = StageFinding(type_, Truth.TRUE, last.reason, last.message, last.stage)
        models, metrics = tuple(state.progress.models), _metrics(state)
        yield msgspec.structs.replace(ended, models=models, metrics=metrics)
    if current is None:
        text = "waits for new samples"
        yield StageFinding("Waiting", Truth.TRUE, "Waiting", text, Stage.TRAIN)
        return
    type_ = _present(observed, state)
    text, models = f"round {current.number}", tuple(current.models)
    yield StageFinding(type_, Truth.TRUE, type_, text, current.stage, models)


def _metrics(state: State) -> dict[str, float]:
    """Of the last evaluation. A status may contain anything."""
    texts = {
        each.key: each.value for each in state.metrics if not each.key.endswith(triggers.DELTA)
    }
    try:
        return {name: value for name, text in texts.items() if math.isfinite(value := float(text))}
    except ValueError:
        return {}


def _present(observed: Observed, state: State) -> str:
    """Sedna's word for what the present stage does."""
    assert state.current is not None
    if state.current.stage is Stage.DEPLOY:
        return "Running"
    pod = workers.pod_of(observed, state.current)
    if pod is None:
        return "Ready"
    return "Starting" if phase_of(pod) == "Pending" else "Running"


def _condition(observed: Observed, finding: StageFinding, now: datetime) -> dict[str, Any]:
    (condition,) = status.conditions(observed, [finding], now)
    # The status is True all the time: what changes is the stage.
    if status.condition(observed, finding.type).get("stage") != finding.stage:
        condition["lastTransitionTime"] = rfc3339(now)
    metrics = {"metrics": finding.metrics} if finding.metrics else {}
    models = [{"format": each.format, "url": each.url, **metrics} for each in finding.models]
    data = {"output": {"models": models}}
    return {
        **condition,
        "stage": str(finding.stage),
        "lastHeartbeatTime": condition["lastTransitionTime"],
        **({"data": json.dumps(data)} if finding.models else {}),
    }
