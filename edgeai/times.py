"""Writes and reads times as Kubernetes does: RFC 3339 in UTC.

All packages write and read times with this module. Components take `now`, so tests pass a clock.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


def rfc3339(
    moment: datetime, timespec: Literal["seconds", "milliseconds", "microseconds"] = "seconds"
) -> str:
    """The time as in metadata.creationTimestamp: UTC with `Z`, cut to the unit `timespec`.

    Args: moment: with a time zone
    """
    return moment.astimezone(UTC).isoformat(timespec=timespec).removesuffix("+00:00") + "Z"


def micro_time(moment: datetime) -> str:
    """The time as in renewTime of a Lease: a MicroTime of Kubernetes always has six digits."""
    return rfc3339(moment, "microseconds")


def parse(text: str) -> datetime:
    """Read an RFC 3339 time, with or without a fraction. The result is in UTC.

    Raises: ValueError if `text` is not a time, or has no time zone. RFC 3339 demands a time zone
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:  # year 1 or 9999: in UTC outside the calendar
        raise ValueError(f"{text!r} is out of range") from error


def age(since: datetime, now: datetime) -> str:
    """The time between two moments, as kubectl rounds it: 45s, 12m, 7h, 3d."""
    seconds = max(0, int((now - since).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
