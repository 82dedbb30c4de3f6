"""The conditions that clients of Sedna read, for jobs in group sedna.io.

They take the last condition as the present one. Sedna appends one with each step, without an end.
Here are two: how the last stage of the last round ended, and what the present stage does.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from edgeai.api.incrementallearningjob import Stage
from edgeai.api.pod_state import phase_of
from edgeai.api.status import Finding, Truth
from edgeai.times import rfc3339
from globalmanager.contract import Observed, Plan
from globalmanager.kinds.edge.incrementallearningjob import workers
from globalmanager.kinds.edge.incrementallearningjob.state import State
from globalmanager.kinds.shared import sedna, status


class StageFinding(Finding, frozen=True):
    stage: Stage
    models: tuple[str, ...] = ()
    """URLs of the models that the round has trained."""


def with_conditions(observed: Observed, state: State, plan: Plan, now: datetime) -> Plan:
    """The plan, with these conditions at the end."""
    if observed.type.group != sedna.GROUP or plan.status is None:
        return plan
    added = [_condition(observed, finding, now) for finding in _findings(observed, state)]
    fields = {**plan.status, "conditions": [*plan.status["conditions"], *added]}
    return msgspec.structs.replace(plan, status=status.subtree(observed, fields))


def _findings(observed: Observed, state: State) -> Iterator[StageFinding]:
    last, current = state.last, state.current
    if last is not None:
        has_ended = last.reason in ("Deployed", "NotDeployed", "MetricMissing")
        type_ = "Completed" if has_ended else "Failed"
        models = tuple(model.url for model in state.progress.models)
        yield StageFinding(type_, Truth.TRUE, last.reason, last.message, last.stage, models)
    if current is None:
        text = "waits for new samples"
        yield StageFinding("Waiting", Truth.TRUE, "Waiting", text, Stage.TRAIN)
        return
    type_ = _present(observed, state)
    models = tuple(model.url for model in current.models)
    text = f"round {current.number}"
    yield StageFinding(type_, Truth.TRUE, type_, text, current.stage, models)


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
    data = {"output": {"models": [{"url": url} for url in finding.models]}}
    return {
        **condition,
        "stage": str(finding.stage),
        "lastHeartbeatTime": condition["lastTransitionTime"],
        **({"data": json.dumps(data)} if finding.models else {}),
    }
