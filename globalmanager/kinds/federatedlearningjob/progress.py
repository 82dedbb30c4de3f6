"""The progress of a FederatedLearningJob: rounds and metrics from the trainers' reports.

Called by `main`. Total: a report may contain anything.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from common import participants
from common.ids import Uid
from common.times import rfc3339
from globalmanager.contract import ObjectRef, Observed, PatchStatus
from globalmanager.kinds.federatedlearningjob.types import TRAIN, FederatedLearningJobSpec
from globalmanager.rules import references as refs
from globalmanager.rules import status as rules
from globalmanager.rules.replication import replica_name

MAX_METRICS: Final = 32
MAX_NAMED: Final = 3  # trainers that a message names
ROUND: Final = "round"
PREFIX: Final = "metrics."
"""A number in a trainer's task info is a metric when its name begins with this prefix."""

Entries = Mapping[str, Mapping[str, Any]]
"""Worker -> its entry of .status.workers, without the workers that no longer count."""


def of(trainers: Entries, counted: Mapping[str, int]) -> dict[str, Any]:
    """The fields round, rounds and metrics of .status. A number is None when no trainer has told
    it.

    Args: counted: trainer -> number of samples in its Dataset, where it is known
    """
    workers = trainers.values()
    return {
        "round": _greatest(workers, "currentRound"),
        "rounds": _greatest(workers, "rounds"),
        "metrics": list(metrics(trainers, counted)),
    }


def counted(observed: Observed, *, is_over: bool) -> dict[str, int]:
    """Trainer -> number of samples that a LocalController has counted in its Dataset, where it is
    known. The numbers stay when the Dataset is deleted, and when the job is over, because the files
    of a node may grow later.
    """
    spec: FederatedLearningJobSpec | None = observed.spec
    stored = rules.mapping(rules.of(observed).get("samples"))
    known = {name: number for name, number in stored.items() if type(number) is int and number >= 0}
    if spec is None or is_over:
        return known
    found: dict[str, int] = {}
    for index, worker in enumerate(spec.training_workers):
        name = replica_name(observed.ref.name, TRAIN, index)
        number = refs.dataset_samples(observed, worker.dataset.name)
        if (number := known.get(name) if number is None else number) is not None:
            found[name] = number
    return found


def uncounted(observed: Observed, spec: FederatedLearningJobSpec) -> str:
    """A hint that names trainers without a counted Dataset, and the bound of their weight. "" when
    each has one.
    """
    known = counted(observed, is_over=False)
    names = {
        replica_name(observed.ref.name, TRAIN, index): worker.dataset.name
        for index, worker in enumerate(spec.training_workers)
    }
    missing = [f"{name} (Dataset {names[name]})" for name in names if name not in known]
    if not missing:
        return ""
    more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
    if any(known.values()):
        bound = f"{max(known.values())}, the largest count among the trainers' Datasets"
    else:
        bound = "the median of the numbers that the trainers tell"
    return (
        f"the samples of {', '.join(missing[:MAX_NAMED])}{more} are not counted, so an update of "
        f"such a trainer weighs at most {bound}: condition Counted of the Dataset says why"
    )


def model_status(
    observed: Observed,
    trainers: Entries,
    counted: Mapping[str, int],
    model: ObjectRef,
    now: datetime,
) -> tuple[PatchStatus, ...]:
    """A patch with round and metrics for the Model that the job makes. Empty when nothing is new.

    Several jobs may make one Model. Only the newest of these jobs writes to the Model. Otherwise
    the jobs would overwrite each other's numbers for ever.
    """
    known = observed.references.get(model)
    reached = of(trainers, counted)
    if known is None or not reached["round"] or newer_job(observed, model):
        return ()
    wanted = {
        "metrics": [{"key": ROUND, "value": str(reached["round"])}, *reached["metrics"]],
        "trainedBy": _job(observed),
    }
    current = rules.mapping(known.get("status"))
    if all(current.get(key) == value for key, value in wanted.items()):
        return ()
    patch = {**wanted, "updateTime": rfc3339(now)}
    return (PatchStatus(model, Uid(known["metadata"].get("uid", "")), patch),)


def newer_job(observed: Observed, model: ObjectRef) -> str:
    """Name of the job that wrote its rounds to the Model, if that job is newer than this job; else
    "".
    """
    known = observed.references.get(model, {})
    other = rules.mapping(rules.mapping(known.get("status")).get("trainedBy"))
    return str(other.get("name", "")) if _made(other) > _made(_job(observed)) else ""


def _job(observed: Observed) -> dict[str, str]:
    created = observed.object["metadata"].get("creationTimestamp", "")
    return {"name": observed.ref.name, "uid": observed.uid, "creationTimestamp": created}


def _made(job: Mapping[str, Any]) -> tuple[str, str]:
    """Sort key for jobs by time of creation. The uid decides between equal times."""
    return str(job.get("creationTimestamp", "")), str(job.get("uid", ""))


def metrics(trainers: Entries, counted: Mapping[str, int]) -> Iterator[dict[str, str]]:
    """The mean of each metric over the trainers that reported the metric. The numbers of samples
    are the weights. The values are text.
    """
    weights = _weights(trainers, counted)
    told = [(weights[name], _metrics(trainers[name])) for name in trainers]
    for key in sorted({key for _, given in told for key in given})[:MAX_METRICS]:
        pairs = [(samples, given[key]) for samples, given in told if key in given]
        total = sum(samples for samples, _ in pairs)
        if total:
            mean = sum(samples * value for samples, value in pairs) / total
            yield {"key": key, "value": f"{mean:.6g}"}


def _weights(trainers: Entries, counted: Mapping[str, int]) -> dict[str, int]:
    """The samples of each trainer, as the aggregator counts them. A trainer with Sedna's library
    tells the total of all trainers, which is never less than what its own Dataset has.
    """
    told = {name: _whole(entry, "sampleCount") or 0 for name, entry in trainers.items()}
    return participants.weights(told, counted)


def _greatest(workers: Iterable[Mapping[str, Any]], name: str) -> int | None:
    told = (_whole(entry, name) for entry in workers)
    return max((number for number in told if number is not None), default=None)


def _whole(entry: Mapping[str, Any], name: str) -> int | None:
    value: Any = rules.mapping(entry.get("taskInfo")).get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value) if is_number and math.isfinite(value) and 0 <= value <= 2**53 else None


def _metrics(entry: Mapping[str, Any]) -> dict[str, float]:
    info = rules.mapping(entry.get("taskInfo"))
    return {
        key.removeprefix(PREFIX): float(value)
        for key, value in info.items()
        if key.startswith(PREFIX) and isinstance(value, int | float) and math.isfinite(value)
    }
