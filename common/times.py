"""Times as Kubernetes writes them: RFC 3339 in UTC.

Used by every package that stamps, prints or reads a time. Components take `now` as a parameter, so
that tests can pass a clock of their own.
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
    """As in metadata.creationTimestamp: in UTC with `Z`; what is finer than `timespec` is cut off.

    Args: moment: with a time zone
    """
    return moment.astimezone(UTC).isoformat(timespec=timespec).removesuffix("+00:00") + "Z"


def micro_time(moment: datetime) -> str:
    """As in the renewTime of a Lease: Kubernetes' MicroTime has always six digits."""
    return rfc3339(moment, "microseconds")


def parse(text: str) -> datetime:
    """Read an RFC 3339 time, with or without a fraction. The result is in UTC.

    Raises: ValueError where `text` is no time, or has no time zone, which RFC 3339 demands
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:  # the first or last hours of the calendar, in another zone
        raise ValueError(f"{text!r} is out of range") from error
