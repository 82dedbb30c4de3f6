"""Backoff: the cap doubles, is bounded, and the whole range below it is drawn from."""

import pytest

from edgeai.backoff import Backoff


def highest(low: float, high: float) -> float:
    return high


def lowest(low: float, high: float) -> float:
    return low


def test_cap_doubles_up_to_the_maximum() -> None:
    backoff = Backoff(base_s=1, max_s=10, uniform=highest)
    assert [backoff.next_s() for _ in range(6)] == [1, 2, 4, 8, 10, 10]


def test_reset_starts_over() -> None:
    backoff = Backoff(base_s=1, max_s=10, uniform=highest)
    backoff.next_s()
    backoff.next_s()
    backoff.reset()
    assert backoff.next_s() == 1


def test_jitter_reaches_down_to_the_floor() -> None:
    assert Backoff(base_s=4, max_s=60, floor_s=1, uniform=lowest).next_s() == 1


def test_retry_after_is_honoured() -> None:
    assert Backoff(base_s=1, max_s=10, uniform=highest).next_s(at_least_s=30) == 30


def test_a_thousand_failures_do_not_overflow() -> None:
    backoff = Backoff(base_s=1, max_s=60, uniform=highest)
    backoff.failures = 5000
    assert backoff.next_s() == 60


def test_contradicting_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="floor"):
        Backoff(base_s=10, max_s=1)
