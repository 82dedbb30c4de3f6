"""The fields of .status that all kinds have, and readers that accept any content."""

import enum
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from edgeai import times
from edgeai.api.resources import Object

TIME: Final = {
    "format": "date-time",
    "pattern": "^.{10}T.{8}([.][0-9]+)?(Z|[+-]([01].|2[0-3]):[0-5].)$",
    "minItems": 1,
    "maxItems": 0,
}
"""An RFC 3339 time as Go reads it. With the format alone, API servers accept a "z", an offset of
"+99:99", and any list."""
Time = Annotated[str, msgspec.Meta(extra_json_schema=TIME)]
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
# Reasons of conditions that are False in the normal course of a job. They cause no event.
STARTING: Final = "Starting"
WAITING: Final = "Waiting"
SUCCEEDED: Final = "Succeeded"
"""Reason of a condition that is False because the job has succeeded. Its event is not a warning."""
MAX_MESSAGE_CHARS: Final = 1024


class Truth(enum.StrEnum):
    """Status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of .status.conditions, as the Kubernetes API conventions define it."""

    type: str
    status: Truth
    reason: str
    message: str
    last_transition_time: Time
    observed_generation: int = 0


LIST_BY_TYPE: Final = msgspec.Meta(
    extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
)
"""Tells the API server that the items of a list differ in their `type`."""
Conditions = Annotated[list[Condition], LIST_BY_TYPE]


class Finding(msgspec.Struct, frozen=True):
    """A condition as a plan computes it, without time and generation."""

    type: str
    truth: Truth
    reason: str
    message: str


class Metric(msgspec.Struct, frozen=True):
    """One entry of .status.metrics. The value is text, as in Sedna."""

    key: str
    """What is measured."""
    value: str
    """The number, as text."""


def parse_time(value: Any) -> datetime | None:
    """An RFC 3339 time of .status or a report, in UTC; None when `value` is not such a time."""
    try:
        return times.parse(value)
    except (TypeError, ValueError):
        return None


def left_s(
    since: Any, limit_s: float | None, now: datetime | None, *, unknown: float = math.inf
) -> float:
    """Seconds from `now` until `limit_s` after `since`. The limit is a deadline, a time to live or
    an age. A result of 0 or less means that the limit has passed.

    Args:
        since: RFC 3339 time of a status or of metadata
        limit_s: seconds; None for no limit
        now: UTC; None when the caller has no clock
        unknown: the result when `since` is not a time, or `now` is None
    """
    if limit_s is None:
        return math.inf
    start = parse_time(since)
    if start is None or now is None:
        return unknown
    return limit_s - (now - start).total_seconds()


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is a map, else an empty map, because a .status can contain anything."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """The items of a list as `mapping` gives them; empty for what is no list."""
    return [mapping(item) for item in value] if isinstance(value, list) else []


def count_of(value: Any) -> int:
    """A whole number of a status, which anybody may have written; 0 for anything else."""
    return value if type(value) is int and 0 <= value < 10**9 else 0


def condition_of(object_: Object, type_: str) -> Mapping[str, Any]:
    """The condition of any object. Empty when the object has no such condition."""
    status = object_.get("status")
    entries = status.get("conditions") if isinstance(status, dict) else None
    # No list of all entries first: the plan of a fleet reads thousands of pods.
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("type") == type_:
            return entry
    return {}


def worker_entries(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Worker -> its entry in .status.workers."""
    return {name: mapping(entry) for name, entry in mapping(status.get("workers")).items()}
