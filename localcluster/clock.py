"""UTC now and the RFC 3339 form in which the API carries times.

Used by everything that stamps or prints a time. Components take `now` as a parameter, so that tests
can pass a clock of their own.
"""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def utcnow() -> datetime:
    return datetime.now(UTC)


def rfc3339(moment: datetime) -> str:
    """In UTC with whole seconds and `Z`, as in metadata.creationTimestamp."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse(text: str) -> datetime:
    """Read an RFC 3339 time, with or without a fraction.

    Raises: ValueError if it is not one.
    """
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
