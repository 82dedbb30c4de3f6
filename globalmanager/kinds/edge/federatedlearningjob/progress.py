"""The progress of a FederatedLearningJob: rounds and metrics from the trainers' reports.

Total: a report may contain anything.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from edgeai import participants
from edgeai.api.federatedlearningjob import FederatedLearningJobSpec
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.status import mapping, mappings
from edgeai.faults.summary import CURVES
from edgeai.ids import Uid
from edgeai.text import listing
from edgeai.times import rfc3339
from globalmanager.contract import Observed, PatchStatus
from globalmanager.kinds.edge import references as refs
from globalmanager.kinds.edge.federatedlearningjob.spec import TRAIN
from globalmanager.kinds.shared import status as job_status
from globalmanager.kinds.shared.replication import replica_name

# A trainer may report any names, and etcd limits the size of an object.
MAX_METRICS: Final = 32
MAX_POINTS: Final = 100  # of the history of one metric; all together have 9 KB
MAX_NAMED: Final = 3  # trainers that a message names
ROUND: Final = "round"
PREFIX: Final = "metrics."
"""A number in a trainer's task info is a metric when its name begins with this prefix."""

Entries = Mapping[str, Mapping[str, Any]]
"""Worker -> its entry of .status.workers, without the workers that no longer count."""


def status_fields(trainers: Entries, counts: Mapping[str, int]) -> dict[str, Any]:
    """The fields round, rounds and metrics of .status. A number is None when no trainer has
    reported it.

    Args: counts: as `sample_counts` returns them
    """
    workers = trainers.values()
    return {
        "round": _greatest(workers, "currentRound"),
        "rounds": _greatest(workers, "rounds"),
        "metrics": list(metrics(trainers, counts)),
    }


def history(last: Any, round_: int | None, metrics: Sequence[Mapping[str, str]]) -> list[Object]:
    """The field history of .status: the metrics after each round.

    Args: last: the field as it is; what is no history counts as none
    """
    series = {str(entry.get("key")): _points(entry) for entry in mappings(last)[:CURVES]}
    present = {metric["key"] for metric in metrics}
    # A job that was made to begin again forgets the rounds that it runs once more.
    for metric in metrics if round_ else ():
        points = series.get(metric["key"], {})
        earlier = {number: value for number, value in points.items() if number < (round_ or 0)}
        series[metric["key"]] = {**earlier, (round_ or 0): metric["value"]}
    # Whoever writes other names into the status takes no room from the job's own metrics.
    others = series.keys() - present
    keys = sorted([*sorted(series.keys() & present), *sorted(others)][:CURVES])
    return [
        {"key": key, "rounds": list(points), "values": list(points.values())}
        for key, points in ((key, _thinned(series[key])) for key in keys)
        if points
    ]


def _points(entry: Mapping[str, Any]) -> dict[int, str]:
    """Round -> value, in the order of the rounds."""
    rounds, values = entry.get("rounds"), entry.get("values")
    are_lists = isinstance(rounds, list) and isinstance(values, list)
    pairs = zip(rounds or (), values or (), strict=False) if are_lists else ()
    points = {number: str(value) for number, value in pairs if type(number) is int}
    return dict(sorted(points.items())[-MAX_POINTS:])


def _thinned(points: dict[int, str]) -> dict[int, str]:
    """The first point of each step, so many that they fit, and the newest one."""
    numbers, step = list(points), 1
    while len(numbers) > MAX_POINTS:
        step *= 2
        firsts = {number // step: number for number in reversed(numbers)}
        numbers = sorted({*firsts.values(), numbers[-1]})
    return {number: points[number] for number in numbers}


def sample_counts(observed: Observed, *, is_over: bool) -> dict[str, int]:
    """Trainer -> number of samples that a LocalController has counted in its Dataset; without the
    trainers whose Dataset has no count. The numbers stay when the Dataset is deleted, and when the
    job is over, because the files of a node may grow later.
    """
    spec: FederatedLearningJobSpec | None = observed.spec
    current = mapping(job_status.status_of(observed).get("samples"))
    # Anybody may write a status, so an entry that is no count is ignored. A bool is no count.
    last = {name: number for name, number in current.items() if type(number) is int and number >= 0}
    if spec is None or is_over:
        return last
    counts: dict[str, int] = {}
    for name, dataset in _datasets(observed, spec).items():
        number = refs.dataset_samples(observed, dataset)
        # It stays when the Dataset is deleted, so no weight changes while the job runs.
        if (number := last.get(name) if number is None else number) is not None:
            counts[name] = number
    return counts


def _datasets(observed: Observed, spec: FederatedLearningJobSpec) -> dict[str, str]:
    """Trainer -> its Dataset."""
    return {
        replica_name(observed.ref.name, TRAIN, index): worker.dataset.name
        for index, worker in enumerate(spec.training_workers)
    }


def count_hint(observed: Observed, spec: FederatedLearningJobSpec) -> str:
    """A hint about trainers whose Dataset has no count, with the bound of their weight; or ""."""
    counts = sample_counts(observed, is_over=False)
    datasets = _datasets(observed, spec).items()
    uncounted = [f"{name} (Dataset {dataset})" for name, dataset in datasets if name not in counts]
    if not uncounted:
        return ""
    if any(counts.values()):
        limit = f"{max(counts.values())}, the largest count among the trainers' Datasets"
    else:
        limit = "the median of the numbers that the trainers tell"
    return (
        f"the samples of {listing(uncounted, MAX_NAMED)} are not counted, so an update of "
        f"such a trainer weighs at most {limit}: condition Counted of the Dataset says why"
    )


def model_status(
    observed: Observed,
    trainers: Entries,
    counts: Mapping[str, int],
    model: ObjectRef,
    now: datetime,
) -> tuple[PatchStatus, ...]:
    """A patch with round and metrics for the Model that the job makes. Empty when nothing is new.

    Several jobs may make one Model. Only the newest of these jobs writes to the Model. Otherwise
    the jobs would overwrite each other's numbers for ever.
    """
    object_ = observed.references.get(model)
    progress = status_fields(trainers, counts)
    # Before the first round there is nothing that describes the Model.
    if object_ is None or not progress["round"] or newer_job(observed, model):
        return ()
    fields = {
        "metrics": [{"key": ROUND, "value": str(progress["round"])}, *progress["metrics"]],
        # The Model itself remembers who wrote it, so jobs decide without knowing of each other.
        "trainedBy": _job(observed),
    }
    current = mapping(object_.get("status"))
    # updateTime is not compared: each plan would write the Model, and each write cause a plan.
    if all(current.get(key) == value for key, value in fields.items()):
        return ()
    patch = {**fields, "updateTime": rfc3339(now)}
    return (PatchStatus(model, Uid(object_["metadata"].get("uid", "")), patch),)


def newer_job(observed: Observed, model: ObjectRef) -> str:
    """Name of the job that wrote its rounds to the Model, if it is newer than this job; else ""."""
    object_ = observed.references.get(model, {})
    other = mapping(mapping(object_.get("status")).get("trainedBy"))
    return str(other.get("name", "")) if _creation(other) > _creation(_job(observed)) else ""


def _job(observed: Observed) -> dict[str, str]:
    creation = observed.object["metadata"].get("creationTimestamp", "")
    return {"name": observed.ref.name, "uid": observed.uid, "creationTimestamp": creation}


def _creation(job: Mapping[str, Any]) -> tuple[str, str]:
    """Sort key for jobs by time of creation. The uid decides between equal times."""
    return str(job.get("creationTimestamp", "")), str(job.get("uid", ""))


def metrics(trainers: Entries, counts: Mapping[str, int]) -> Iterator[dict[str, str]]:
    """The mean of each metric over the trainers that tell it, weighted by samples; as text."""
    # A trainer with Sedna's library reports the samples of all trainers, which are never fewer than
    # those of its own Dataset. So its weight is the count of its Dataset, where there is one.
    claims = {name: _whole(entry, "sampleCount") or 0 for name, entry in trainers.items()}
    weights = participants.weights(claims, counts)
    reports = [(weights[name], _metrics(entry)) for name, entry in trainers.items()]
    for key in sorted({key for _, values in reports for key in values})[:MAX_METRICS]:
        pairs = [(weight, values[key]) for weight, values in reports if key in values]
        total = sum(weight for weight, _ in pairs)
        if total:
            mean = sum(weight * value for weight, value in pairs) / total
            yield {"key": key, "value": f"{mean:.6g}"}


def _greatest(workers: Iterable[Mapping[str, Any]], name: str) -> int | None:
    numbers = (_whole(entry, name) for entry in workers)
    return max((number for number in numbers if number is not None), default=None)


def _whole(entry: Mapping[str, Any], name: str) -> int | None:
    value: Any = mapping(entry.get("taskInfo")).get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # JSON numbers above 2**53 lose digits, and int() of an infinite number raises an exception.
    return int(value) if is_number and math.isfinite(value) and 0 <= value <= 2**53 else None


def _metrics(entry: Mapping[str, Any]) -> dict[str, float]:
    info = mapping(entry.get("taskInfo"))
    return {
        key.removeprefix(PREFIX): float(value)
        for key, value in info.items()
        # A loss that became NaN would make the mean of all trainers NaN.
        if key.startswith(PREFIX) and isinstance(value, int | float) and math.isfinite(value)
    }
