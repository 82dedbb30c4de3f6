"""Counting at the door, with a clock that stands still until it is moved."""

import pytest

from globalmanager.edge.admission import Lobby, retry_after


def test_the_lobby_is_bounded_per_address_and_in_total() -> None:
    lobby = Lobby(total=3, per_address=2)
    visits = [lobby.enter(who) for who in "aaabb"]
    assert [visit is not None for visit in visits] == [True, True, False, True, False]
    assert visits[0] is not None
    visits[0].leave()
    visits[0].leave()
    assert lobby.enter("b") is not None
    assert len(lobby) == 3


@pytest.mark.parametrize(("draw", "header"), [(0.0, "5"), (0.5, "10"), (1.0, "15")])
def test_those_turned_away_are_spread_around_the_mean(draw: float, header: str) -> None:
    assert retry_after(10, lambda low, high: low + draw * (high - low)) == header
