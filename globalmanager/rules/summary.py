"""What a status says in a few words: phase, progress, and what keeps the job from going on.

Called by `edgeai status` and by the web console, so that both use the same words. Pure and total:
the status may be whatever another release, or somebody else, has written.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from globalmanager.rules.status import mapping

MAX_SHOWN: Final = 6  # largest number of values that the progress of a job shows
CURVES: Final = 6  # metrics of a job that have a curve, the first ones by name
MAX_METRICS: Final = 200  # metrics of a job that are looked at
REPLICA_STATES: Final = ("active", "succeeded", "failed")
_TRAINING_TROUBLE: Final = ("Restarting", "Suspended", "Failed")  # last conditions of training jobs


def conditions_of(status: Any) -> tuple[Mapping[str, Any], ...]:
    """The conditions, in the order of the status."""
    found = mapping(status).get("conditions")
    return tuple(map(mapping, found)) if isinstance(found, list) else ()


def phase_of(status: Any) -> str:
    """The phase of a job. The last condition of a training job says the same. A Model or a Dataset
    is Ready, or the reason of its first condition that is not True.
    """
    conditions = conditions_of(status)
    if told := mapping(status).get("phase"):
        return str(told)
    if not conditions:
        return "-"
    if _is_history(conditions):
        return str(conditions[-1].get("type") or "-")
    bad = next((each for each in conditions if not is_true(each)), None)
    return "Ready" if bad is None else str(bad.get("reason") or bad.get("type") or "-")


def _is_history(conditions: tuple[Mapping[str, Any], ...]) -> bool:
    """Only the conditions of training jobs are a history, which begins with Created."""
    return any(each.get("type") == "Created" for each in conditions)


def progress_of(status: Any) -> str:
    """The progress of a job: first the round, if the job has rounds, then the metrics. Of a
    training job, the numbers of replicas.
    """
    known = mapping(status)
    replicas = mapping(known.get("replicaStatuses") or known.get("tfReplicaStatuses"))
    if replicas:
        return ", ".join(_numbers(type_, mapping(entry)) for type_, entry in replicas.items())
    told = [f"{key} {value}" for key, value in metrics_of(status)]
    if known.get("rounds"):
        told.insert(0, f"round {known.get('round', 0)}/{known['rounds']}")
    elif known.get("round"):  # Sedna's library does not tell how many rounds there will be
        told.insert(0, f"round {known['round']}")
    return ", ".join(told[:MAX_SHOWN])


def metrics_of(status: Any) -> tuple[tuple[str, str], ...]:
    """The metrics as (key, value), in the order of the status."""
    found = mapping(status).get("metrics")
    entries = map(mapping, found) if isinstance(found, list) else ()
    return tuple((str(each.get("key", "")), str(each.get("value", ""))) for each in entries)


def numbers_of(status: Any) -> dict[str, float]:
    """The metrics that a curve can show."""
    numbers: dict[str, float] = {}
    for key, value in metrics_of(status)[:MAX_METRICS]:
        try:
            numbers[key] = float(value)
        except ValueError:
            continue
    return {key: value for key, value in numbers.items() if abs(value) < math.inf}


def _numbers(type_: str, entry: Mapping[str, Any]) -> str:
    """ "Worker 2 active, 1 failed" """
    told = [f"{entry[state]} {state}" for state in REPLICA_STATES if entry.get(state)]
    return f"{type_} {', '.join(told) or '0 active'}"


def trouble_of(status: Any) -> str:
    """What keeps a job from going on: the message of the first condition that is not True. The
    conditions of a training job are a history, so there the message of the condition Stalled or of
    the phase counts. "" for a job that has succeeded.
    """
    found = trouble_condition(status)
    return "" if found is None else str(found.get("message") or "")


def trouble_condition(status: Any) -> Mapping[str, Any] | None:
    """The condition that says what keeps a job from going on."""
    phase, conditions = phase_of(status), conditions_of(status)
    if phase == "Succeeded":
        return None
    if _is_history(conditions):
        told = {str(each.get("type")): each for each in conditions if is_true(each)}
        return told.get("Stalled") or (told.get(phase) if phase in _TRAINING_TROUBLE else None)
    return next((each for each in conditions if not is_true(each)), None)


def is_true(condition: Mapping[str, Any]) -> bool:
    return condition.get("status") == "True"
