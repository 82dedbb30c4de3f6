"""The Events of a job, of its pods and of what scales it, when a person asks for them.

Each load is a few requests to the Kubernetes API that show the caller's token, so the API server
decides what the caller may read. Nothing else of an open page reaches the API server, so a caller
may load little: a rate of its own, so many objects, and so many Events of each.
"""

import asyncio
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from common.clock import loop_time
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.status import mapping
from edgeai.errors import Overloaded
from edgeai.ids import Uid
from edgeai.text import printable
from globalmanager.rest.console.actions import CallersApi
from globalmanager.rest.console.board import Board
from globalmanager.rest.console.details import is_troubled
from globalmanager.rest.console.visits import Visit
from globalmanager.rest.errors import RequestError
from globalmanager.rest.fair_rate import FairRate, Rate

MAX_ROWS: Final = 200
MAX_MESSAGE_CHARS: Final = 1024
MAX_WORD_CHARS: Final = 128
SCALERS: Final = 3  # the newest ones of a job, whose events are read
MAX_BYTES: Final = 512 * 1024
"""Bytes of the Events of one object."""


class EventLimits(msgspec.Struct, frozen=True, kw_only=True):
    objects: int = 12
    """Objects whose Events one load reads, each by one request."""
    events: int = 50
    """Events of one object that are shown, the newest."""
    read: int = 300
    """Events of one object that are read. A list that ends early holds the oldest ones, because
    the names of Events begin alike and end with a time."""
    load_s: float = 10.0
    """Longest time of one load."""
    at_once: int = 4
    """Loads at the same time, of all callers."""
    each: Rate = Rate(0.2, 5)
    """Loads of one user per second, or of all ServiceAccounts of a namespace."""
    total: Rate = Rate(2.0, 20)
    """Loads of all per second."""


class Loaded(NamedTuple):
    """Rows, the newest first, and what a reader must know about what is missing."""

    rows: list[dict[str, Any]]
    notes: list[str]


class Events:
    """Args: callers_api: asks with the caller's token; board: knows what belongs to a job"""

    def __init__(
        self,
        callers_api: CallersApi,
        board: Board,
        limits: EventLimits = EventLimits(),  # noqa: B008 - frozen
    ) -> None:
        self._callers_api = callers_api
        self._board = board
        self._limits = limits
        self._rate = FairRate(of_source=limits.each, total=limits.total, part="loads of events")
        self._loading = 0

    async def load(self, visit: Visit, ref: ObjectRef, job: Object) -> Loaded:
        """Raises: RequestError when the token is no longer good"""
        if visit.session is None:
            return Loaded([], ["Log in to load events: they are read with your own rights."])
        try:
            self._rate.take(visit.caller.tenant, loop_time())
        except Overloaded as error:
            again_s = max(1.0, error.retry_after_s)
            return Loaded([], [f"Too many loads of events: try again in {again_s:.0f} s."])
        if self._loading >= self._limits.at_once:
            return Loaded([], ["Others load events now: try again in a few seconds."])
        self._loading += 1
        try:
            return await self._read(visit, visit.session.token, ref, job)
        finally:
            self._loading -= 1

    async def _read(self, visit: Visit, token: str, ref: ObjectRef, job: Object) -> Loaded:
        all_events: list[Object] = []
        notes = [] if visit.sight.pods else ["You may not list pods, so their events are not read."]
        objects = [job, *self._others(visit, ref)]
        selection = objects[: self._limits.objects]
        if len(selection) < len(objects):
            notes.append(
                f"Read: the events of {len(selection)} of {len(objects)} objects, first of the "
                "pods that do not run."
            )
        try:
            async with asyncio.timeout(self._limits.load_s):
                for subject in selection:
                    events, missing = await self._about(subject, token, ref.namespace)
                    all_events += events
                    notes += missing
        except TimeoutError:
            notes.append("The Kubernetes API did not answer in time; these events are not all.")
        except RequestError as error:
            if error.status == HTTPStatus.UNAUTHORIZED and not visit.is_by_proxy:
                raise  # to the login; a proxy logs in again by itself
            note = f"Events cannot be read: {error.message}"
            if error.status == HTTPStatus.FORBIDDEN:
                note = f"You may not list events in the namespace {ref.namespace}: "
                note += "ask for the right list events."
            notes.append(note)
        rows = [_row(event) for event in all_events]
        rows.sort(key=lambda row: str(row["last"]), reverse=True)
        return Loaded(rows[:MAX_ROWS], notes)

    async def _about(
        self, object_: Object, token: str, namespace: str
    ) -> tuple[list[Object], list[str]]:
        """The Events of one object, and a note when some are missing. Raises: RequestError"""
        uid, name = Uid(str(object_["metadata"].get("uid", ""))), object_["metadata"]["name"]
        limits = self._limits
        try:
            events, is_more = await self._callers_api.events(token, namespace, uid, limits.read)
        except RequestError as error:
            if error.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise
            return [], [f"Events of {name} cannot be read: {error.message}"]
        newest = sorted(events, key=_last, reverse=True)[: limits.events]
        if is_more:
            return newest, [
                f"{name} has more events than the {limits.read} read; newer ones may be missing."
            ]
        is_cut = len(newest) < len(events)
        return newest, [f"{name} has more events than the {len(newest)} shown."] * is_cut

    def _others(self, visit: Visit, ref: ObjectRef) -> Iterator[Object]:
        """What belongs to the job: what scales it, then its pods, those with trouble first."""
        yield from self._board.scaled_children(visit.sight, ref)
        yield from list(self._board.scalers(visit.sight, ref).values())[: -SCALERS - 1 : -1]
        yield from sorted(self._board.pods(visit.sight, ref), key=lambda pod: not is_troubled(pod))


def _row(event: Mapping[str, Any]) -> dict[str, Any]:
    """An Event, whoever has written it: edgeai, Kubernetes, or a tenant."""
    about, series = mapping(event.get("involvedObject")), mapping(event.get("series"))
    counts = (event.get("count"), series.get("count"))
    source = event.get("reportingComponent") or mapping(event.get("source")).get("component")
    return {
        "last": _last(event),
        "is_warning": event.get("type") == "Warning",
        "reason": _word(event.get("reason")),
        "about": f"{_word(about.get('kind'))} {_word(about.get('name'))}",
        "message": printable(str(event.get("message") or ""))[:MAX_MESSAGE_CHARS],
        "count": next((count for count in counts if type(count) is int and count > 0), 1),
        "by": _word(source),
    }


def _last(event: Mapping[str, Any]) -> str:
    """When it happened last; "" when the Event does not tell."""
    series = mapping(event.get("series"))
    moments = (
        *(event.get("lastTimestamp"), series.get("lastObservedTime"), event.get("eventTime")),
        mapping(event.get("metadata")).get("creationTimestamp"),
    )
    return _word(next((moment for moment in moments if moment), ""))


def _word(value: Any) -> str:
    return printable(str(value or ""))[:MAX_WORD_CHARS]
