"""The plan of a training job, and the reasons of its events, in the words of the operators."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from edgeai.api.resources import ResourceType
from edgeai.times import rfc3339
from globalmanager.contract import Observed, Plan
from globalmanager.kinds.shared import overridden, status
from globalmanager.kinds.shared.children import Stages
from globalmanager.kinds.shared.job_conditions import Conditions
from globalmanager.kinds.shared.lifecycle import Timers


def event_reason(action: str, type_: ResourceType) -> str:
    """The reason of the event about an action of the engine, in the words of the operator."""
    # ttlSecondsAfterFinished: for a job of any kind the operators record SuccessfulDeleteJob.
    noun = "Job" if type_.kind.endswith("Job") else type_.kind
    words = {"Created": f"SuccessfulCreate{noun}", "Deleted": f"SuccessfulDelete{noun}"}
    return words.get(action, action)


def written_plan(
    observed: Observed,
    conditions: Conditions,
    fields: Mapping[str, Any],
    now: datetime,
    *,
    stages: Stages = (),
    timers: Timers = Timers(),  # noqa: B008 - frozen
) -> Plan:
    """A training kind's plan with this status, and Overridden for children that others set.

    Args: fields: the fields of .status beside observedGeneration and conditions
    """
    contested = overridden.finding(observed, stages)
    # First in the list: clients of the operators read the last condition as the job's state.
    if contested is not None:
        conditions.tell_first(contested)
    desired = {
        "observedGeneration": observed.generation,
        "conditions": conditions.entries,
        **fields,
    }
    patch = status.replacing_subtree(observed, desired)
    # The time alone is no news. With it in the comparison, every plan would write.
    if patch is not None:
        patch = {**patch, "lastReconcileTime": rfc3339(now)}
    return Plan(
        stages=stages,
        status=patch,
        events=tuple(conditions.events),
        requeue_after_s=timers.next_s,
    )
