"""What .status knows of the rounds, and what the workers have told of the present one.

Total: a status may contain anything, and so may a report.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from edgeai.api.incrementallearningjob import (
    MAX_NUMBER,
    Deployed,
    Outcome,
    Progress,
    Published,
    Round,
    Stage,
    TrainedModel,
)
from edgeai.api.specs import InvalidSpec
from edgeai.api.status import Metric, mapping, mappings, worker_entries
from globalmanager.contract import Observed
from globalmanager.kinds.edge.incrementallearningjob.spec import job_directory, worker_name
from globalmanager.kinds.shared import status, storage, worker_status

T = TypeVar("T", bound=msgspec.Struct)

MAX_MODELS: Final = 3  # of one training; a LocalController tells no more
MAX_METRICS: Final = 32
METRICS: Final = "metrics."


class State(msgspec.Struct, frozen=True):
    """What decides the next step: fields of .status. The plan writes it before it acts."""

    round: int = 0
    current: Round | None = None
    progress: Progress = Progress()
    deployed: Deployed | None = None
    former: Deployed | None = None
    published: Published | None = None
    last: Outcome | None = None
    metrics: list[Metric] = []


def state_of(observed: Observed) -> State:
    """The state in .status. A part that cannot be read counts as missing, and so does one with a
    URL that the plan would not have written: workers mount it.
    """
    fields = status.status_of(observed)
    current = _part(fields, "current", Round)
    if current is not None and not _is_sound(observed, current):
        current = None
    progress = _part(fields, "progress", Progress)
    if progress is None or not _are_own(observed, *(model.url for model in progress.models)):
        progress = Progress()
    number = fields.get("round")
    numbers = [number] if isinstance(number, int) and not isinstance(number, bool) else []
    metrics = mappings(fields.get("metrics"))[: 2 * MAX_METRICS]
    return State(
        # The number never falls, because a round that ran must not run again under its number.
        round=min(max([0, *numbers, *([current.number] if current else [])]), MAX_NUMBER - 1),
        current=current,
        progress=progress,
        deployed=_model(observed, fields, "deployed"),
        former=_model(observed, fields, "former"),
        published=_part(fields, "published", Published),
        last=_part(fields, "last", Outcome),
        metrics=[Metric(str(one.get("key")), str(one.get("value"))) for one in metrics],
    )


def _part(fields: Mapping[str, Any], name: str, type_: type[T]) -> T | None:
    try:
        return msgspec.convert(fields.get(name), type_)
    except msgspec.ValidationError:
        return None


def _model(observed: Observed, fields: Mapping[str, Any], name: str) -> Deployed | None:
    model = _part(fields, name, Deployed)
    if model is None or not _are_own(observed, model.url, *(one.url for one in model.models)):
        return None
    return model


def _is_sound(observed: Observed, current: Round) -> bool:
    models = [model.url for model in current.models]
    return (
        all(map(_is_url, (current.url, current.base)))
        and _are_own(observed, current.directory, *models)
        and current.directory.endswith("/model")
        and (current.stage is Stage.TRAIN or bool(models))
    )


def _are_own(observed: Observed, *urls: str) -> bool:
    """Whether workers of this job may have saved these models."""
    return all(_is_url(url) and f"/{job_directory(observed)}/" in url for url in urls)


def _is_url(url: str) -> bool:
    try:
        storage.check_url(url)
    except InvalidSpec:
        return False
    return True


# ---- reports ------------------------------------------------------------------------------------


class Result(NamedTuple):
    """What the worker of a stage has told at its end."""

    models: list[TrainedModel]
    """With the URLs that the round gives them, wherever the worker had them."""
    new: Mapping[str, float]
    """Metric of the model of the round -> value."""
    former: Mapping[str, float]
    """The same of the other model."""


def result_of(observed: Observed, current: Round) -> Result | None:
    """The result of the present stage; None while there is none of this round.

    The worker has the same name in each round. Its models tell the round: they are in the directory
    of the round, or the report is one of another round.
    """
    name = worker_name(observed, current.stage.lower())
    entry = worker_entries(status.status_of(observed)).get(name, {})
    details = mapping(entry.get("details"))
    told = {
        index: TrainedModel(path, str(details.get(f"results.{index}.format", "")))
        for index in range(MAX_MODELS)
        if (path := _within(current.directory, details.get(f"results.{index}.url")))
    }
    if entry.get("status") != "completed" or not told:
        return None
    numbers = mapping(entry.get("taskInfo"))
    # Of an evaluation, one model is of the round, whichever comes first.
    new = min(told)
    former = _metrics(numbers, 0 if new else 1)
    return Result(list(told.values()), _metrics(numbers, new), former)


def _within(directory: str, url: Any) -> str:
    """The URL of the model as nodes know it; "" unless it is in the directory."""
    # A worker may know the directory below another one. A node can say anything, and this path is
    # mounted into the workers of later rounds: so only what follows the directory counts.
    for root in (directory, storage.path_in_pod(directory)):
        rest = url.partition(f"{root}/")[2].rstrip("/") if isinstance(url, str) else ""
        # These divide MODEL_URLS and mount paths, name variables of a container, and end a path
        # that was too long for the status.
        has_mark = any(mark in rest for mark in (";", ":", "$(", "…"))
        if rest and ".." not in rest.split("/") and not has_mark:
            return f"{directory}/{rest}"
    return ""


def _metrics(numbers: Mapping[str, Any], index: int) -> dict[str, float]:
    """The metrics of a model, by its place in the report: metrics.NAME, or metrics.1.NAME."""
    prefix = f"{METRICS}{index}." if index else METRICS
    others = () if index else tuple(f"{METRICS}{other}." for other in range(1, MAX_MODELS))
    found = {}
    for name, value in numbers.items():
        is_of_model = name.startswith(prefix) and not name.startswith(others)
        if is_of_model and worker_status.is_number(value):
            found[name.removeprefix(prefix)] = float(value)
    return dict(sorted(found.items())[:MAX_METRICS])


def shown_metrics(result: Result) -> list[Metric]:
    deltas = {
        f"{name}_delta": value - result.former[name]
        for name, value in result.new.items()
        if name in result.former
    }
    return [Metric(name, f"{value:.6g}") for name, value in {**result.new, **deltas}.items()]
