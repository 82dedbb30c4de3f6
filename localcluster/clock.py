"""UTC now and the RFC 3339 form in which the API carries times.

Used by everything that stamps or prints a time. Never reads a clock on its own account: callers
pass `now`, so that tests can.
"""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def utcnow() -> datetime:
    return datetime.now(UTC)


def rfc3339(moment: datetime) -> str:
    """Seconds precision with `Z`, like metadata.creationTimestamp."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse(text: str) -> datetime:
    """Read an RFC 3339 time, with or without a fraction.

    Raises: ValueError if it is not one.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
