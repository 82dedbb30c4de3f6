"""Counting at the door, with a clock that stands still until it is moved."""

import pytest

from globalmanager.edge.admission import Lobby, TokenBucket, retry_after


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(per_s=10, burst=3, clock=clock)
    assert [bucket.take() for _ in range(5)] == [True, True, True, False, False]
    clock.now += 0.25
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    clock.now += 1000
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_the_lobby_is_bounded_per_address_and_in_total() -> None:
    lobby = Lobby(total=3, per_address=2)
    assert [lobby.enter(who) for who in "aaabb"] == [True, True, False, True, False]
    lobby.leave("a")
    assert lobby.enter("b")
    assert len(lobby) == 3


@pytest.mark.parametrize(("draw", "header"), [(0.0, "5"), (0.5, "10"), (1.0, "15")])
def test_those_turned_away_are_spread_around_the_mean(draw: float, header: str) -> None:
    assert retry_after(10, lambda low, high: low + draw * (high - low)) == header
