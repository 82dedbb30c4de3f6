"""How far a FederatedLearningJob is: rounds and metrics, from what the trainers reported.

Called by `main`. Total: a report may hold anything.
"""

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from common.ids import Uid
from globalmanager import status as rules
from globalmanager.model import ObjectRef, Observed, PatchStatus

MAX_METRICS: Final = 32
ROUND: Final = "round"
PREFIX: Final = "metrics."
"""Of those numbers of a trainer's task info that are metrics."""


def of(observed: Observed) -> dict[str, Any]:
    """round, rounds and metrics of .status."""
    workers = rules.workers(rules.of(observed)).values()
    return {
        "round": max((_whole(entry, "currentRound") for entry in workers), default=0),
        "rounds": max((_whole(entry, "rounds") for entry in workers), default=0),
        "metrics": list(metrics(workers)),
    }


def told_to_model(observed: Observed, model: ObjectRef, now: datetime) -> tuple[PatchStatus, ...]:
    """Round and metrics for the .status of the Model that the job makes, when they are news."""
    known = observed.references.get(model)
    reached = of(observed)
    if known is None or not reached["round"]:
        return ()
    wanted = [{"key": ROUND, "value": str(reached["round"])}, *reached["metrics"]]
    if rules.mapping(known.get("status")).get("metrics") == wanted:
        return ()
    patch = {"metrics": wanted, "updateTime": rules.timestamp(now)}
    return (PatchStatus(model, Uid(known["metadata"].get("uid", "")), patch),)


def metrics(workers: Any) -> Iterator[dict[str, str]]:
    """Mean of each metric over the trainers that told it, weighted by samples; as text."""
    told = [(_samples(entry), _metrics(entry)) for entry in workers]
    for key in sorted({key for _, given in told for key in given})[:MAX_METRICS]:
        pairs = [(samples, given[key]) for samples, given in told if key in given]
        total = sum(samples for samples, _ in pairs)
        if total:
            mean = sum(samples * value for samples, value in pairs) / total
            yield {"key": key, "value": f"{mean:.6g}"}


def _samples(entry: Mapping[str, Any]) -> int:
    return _whole(entry, "sampleCount")


def _whole(entry: Mapping[str, Any], name: str) -> int:
    value: Any = rules.mapping(entry.get("taskInfo")).get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and math.isfinite(value) and 0 <= value <= 2**53 else 0


def _metrics(entry: Mapping[str, Any]) -> dict[str, float]:
    info = rules.mapping(entry.get("taskInfo"))
    return {
        key.removeprefix(PREFIX): float(value)
        for key, value in info.items()
        if key.startswith(PREFIX) and isinstance(value, int | float) and math.isfinite(value)
    }
