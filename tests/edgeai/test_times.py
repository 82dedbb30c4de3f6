"""Times: written as Kubernetes writes them, read back to the same moment."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeai import times

ZONES = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(
    lambda offset: timezone(timedelta(minutes=offset // timedelta(minutes=1)))
)
MOMENTS = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=ZONES)


def test_whole_seconds_in_utc() -> None:
    moment = datetime(2026, 1, 2, 4, 4, 5, 999_999, tzinfo=timezone(timedelta(hours=1)))
    assert times.rfc3339(moment) == "2026-01-02T03:04:05Z"
    assert times.rfc3339(moment, "milliseconds") == "2026-01-02T03:04:05.999Z"


def test_a_micro_time_has_six_digits_also_at_a_whole_second() -> None:
    assert times.micro_time(datetime(2026, 1, 2, tzinfo=UTC)) == "2026-01-02T00:00:00.000000Z"


@given(MOMENTS)
def test_what_is_written_is_read_back(moment: datetime) -> None:
    assert times.parse(times.micro_time(moment)) == moment
    assert times.parse(times.rfc3339(moment)) == moment.astimezone(UTC).replace(microsecond=0)
    assert times.parse(moment.isoformat()).tzinfo is UTC


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-01-02", "2026-01-02T03:04:05", "9999-12-31T23:59:59-01:00"]
)
def test_what_is_no_time_of_rfc_3339_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        times.parse(text)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-3, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d")],
)
def test_an_age_has_one_unit(seconds: int, shown: str) -> None:
    now = datetime(2030, 1, 2, tzinfo=UTC)
    assert times.age(now - timedelta(seconds=seconds), now) == shown
