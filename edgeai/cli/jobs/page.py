"""The page of `edgeai describe`: what a job is, how it is, what it waits for, and what to do."""

import inspect
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from rich.console import Group
from rich.text import Text

from edgeai.api.resources import Object
from edgeai.cli.status import age_text, table
from edgeai.client.objects import AnyResource
from edgeai.client.pods import Worker, workers_of
from edgeai.client.state import Condition, State, conditions_of
from edgeai.faults.faults import Fault
from edgeai.faults.summary import progress_of
from edgeai.faults.tones import Tone
from edgeai.text import printable

MAX_SHOWN: Final = 10  # faults of the page
_PENDING: Final = "nothing: it goes on by itself"


class Remedy(msgspec.Struct, frozen=True):
    about: str
    """The reason of a fault."""
    remedy: str


class Excerpt(msgspec.Struct, frozen=True):
    """The last lines of the log of a container that has crashed."""

    about: str
    """A text of `waits_for`."""
    worker: str
    lines: tuple[str, ...]


class Description(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `edgeai describe -o json` prints."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    about: str
    created: str
    phase: str
    result: str
    progress: str
    conditions: tuple[Condition, ...]
    workers: list[Worker]
    waits_for: tuple[str, ...]
    logs: list[Excerpt]
    todo: list[Remedy]


def described(
    job: AnyResource, state: State, pods: Iterable[Object], now: datetime | None = None
) -> Description:
    """Pure. Texts of the objects have no control characters here. Args: now: as for `state_of`"""
    return Description(
        api_version=job.type.api_version,
        kind=job.type.kind,
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        about=" ".join((inspect.getdoc(type(job)) or "").partition("\n\n")[0].split()),
        created=printable(str(job.metadata.get("creationTimestamp") or "")),
        phase=state.phase,
        result=state.result,
        progress=printable(progress_of(job.object.get("status"))),
        conditions=conditions_of(job.object),
        workers=workers_of(job.object, pods, now),
        waits_for=state.waits_for,
        logs=[Excerpt(fault.text, fault.worker, fault.log) for fault in state.faults if fault.log],
        todo=_todo(state.faults),
    )


def _todo(faults: Iterable[Fault]) -> list[Remedy]:
    """Each remedy once, for the first reason that has it."""
    reasons: dict[str, str] = {}
    for fault in faults:
        if fault.remedy:
            reasons.setdefault(fault.remedy, fault.reason)
    return [Remedy(reason, remedy) for remedy, reason in reasons.items()]


def page(job: Description, now: datetime) -> Group:
    """The page for people. Its first line has the first thing that the job waits for."""
    head = Text(f"{job.kind} {job.namespace}/{job.name} ({job.api_version})", style="bold")
    if job.waits_for:
        head.append(f": {job.waits_for[0]}", style="yellow")
    parts: list[Any] = [
        head,
        Text(job.about, style="dim"),
        Text(f"phase {job.phase}, age {age_text(job.created or None, now)}, uid {job.uid}"),
    ]
    parts += [Text(f"progress {job.progress}")] if job.progress else []
    parts += [Text(), _conditions(job.conditions, now)] if job.conditions else []
    parts += [Text(), _workers(job.workers)] if job.workers else []
    parts += _waits(job)
    parts += _list("what to do", [f"{step.about}: {step.remedy}" for step in job.todo])
    return Group(*parts)


def _waits(job: Description) -> list[Text]:
    logs = {excerpt.about: excerpt.lines for excerpt in job.logs}
    lines = ["\n    ".join([text, *logs.get(text, ())]) for text in job.waits_for]
    if job.result == "failed":
        return _list("why it failed", lines)
    rows = lines[:MAX_SHOWN]
    more = len(lines) - len(rows)
    rows += [f"and {more} more"] if more else []
    return _list("waits for", rows or ([] if job.result else [_PENDING]))


def _list(title: str, lines: Sequence[str]) -> list[Text]:
    if not lines:
        return []
    return [Text(), Text(title, style="bold"), *(Text(f"- {line}") for line in lines)]


def _conditions(conditions: Iterable[Condition], now: datetime) -> Any:
    headers = ("CONDITION", "STATUS", "SINCE", "REASON", "")
    rows = [
        (
            condition.type,
            Text(condition.status, style=(Tone.GOOD if condition.good else Tone.WAITING).style),
            _since(condition.since, now),
            condition.reason,
            condition.message,
        )
        for condition in conditions
    ]
    return table("conditions", headers, rows)


def _since(time: str, now: datetime) -> str:
    try:
        return f"{age_text(time or None, now)} ago" if time else "-"
    except ValueError:
        return "-"  # no time at all


def _workers(workers: Iterable[Worker]) -> Any:
    headers = ("WORKER", "ROLE", "NODE", "PHASE", "ATTEMPT", "RESTARTS", "COUNTS", "")
    rows = [
        (
            worker.name,
            worker.role or "-",
            worker.node or "-",
            worker.phase or "-",
            "-" if worker.attempt is None else str(worker.attempt),
            str(worker.restarts),
            ", ".join(f"{name} {number:g}" for name, number in worker.counts.items()) or "-",
            Text(worker.problem, style="yellow"),
        )
        for worker in workers
    ]
    return table("workers", headers, rows)
