"""The token bucket keeps the rate, and holds when told to."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.ratelimit import TokenBucket, TokenBuckets
from edgeai.errors import Overloaded


def test_a_burst_passes_at_once_and_then_the_rate_rules() -> None:
    bucket = TokenBucket(qps=10, burst=3)
    waits = [bucket.reserve(0.0) for _ in range(5)]
    assert waits == pytest.approx([0, 0, 0, 0.1, 0.2])


def test_tokens_come_back_with_time_up_to_the_burst() -> None:
    bucket = TokenBucket(qps=10, burst=2)
    for _ in range(2):
        bucket.reserve(0.0)
    assert [bucket.reserve(100.0) for _ in range(3)] == pytest.approx([0, 0, 0.1])


def test_a_token_that_is_given_back_serves_the_next_request() -> None:
    bucket = TokenBucket(qps=0.001, burst=2, max_wait_s=0.0)
    bucket.give_back()
    bucket.reserve(0.0)
    bucket.reserve(0.0)
    bucket.give_back()
    bucket.reserve(0.0)
    with pytest.raises(Overloaded):
        bucket.reserve(0.0)


@given(st.lists(st.floats(0, 0.5), min_size=1, max_size=60))
def test_no_second_sees_more_than_burst_plus_rate(gaps: list[float]) -> None:
    bucket = TokenBucket(qps=20, burst=5)
    now, used = 0.0, []
    for gap in gaps:
        now += gap
        used.append(now + bucket.reserve(now))
    for start in used:
        assert sum(start <= at < start + 1 for at in used) <= 26


def test_who_would_wait_too_long_is_turned_away_without_a_token() -> None:
    bucket = TokenBucket(qps=1, burst=1, max_wait_s=2.0)
    waits = [bucket.reserve(0.0) for _ in range(3)]
    for _ in range(10):
        with pytest.raises(Overloaded):
            bucket.reserve(0.0)
    assert waits == [0, 1, 2]
    assert bucket.reserve(1.0) == 2.0


@pytest.mark.looptime
async def test_acquire_waits_for_its_turn() -> None:
    bucket = TokenBucket(qps=2, burst=1)
    started = asyncio.get_running_loop().time()
    for _ in range(4):
        await bucket.acquire()
    assert asyncio.get_running_loop().time() - started == pytest.approx(1.5)


def test_the_bucket_of_a_source_that_does_not_come_again_takes_memory_until_it_is_full() -> None:
    """As the workers of job after job on a node: 2,000 of them in 1,000 s, 10 s to fill up."""
    buckets = TokenBuckets(qps=1.0, burst=10, max_wait_s=0.0, part="test")
    busy = buckets.bucket("busy", 0.0)
    busy.reserve(0.0, 9)
    for number in range(2000):
        now = number * 0.5
        buckets.bucket(f"job {number}", now).reserve(now, 10)
        if number < 1000:
            assert buckets.bucket("busy", now) is busy, "a source got a second burst"
            busy.reserve(now, 0.5)
        assert len(buckets) <= 22


def test_a_bucket_is_full_when_it_would_let_a_new_burst_pass() -> None:
    bucket = TokenBucket(qps=1.0, burst=10)
    assert bucket.is_full(0.0)
    bucket.reserve(0.0)
    assert not bucket.is_full(0.5)
    assert bucket.is_full(1.0)
