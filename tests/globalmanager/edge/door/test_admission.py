"""Counting at the door, with a clock that stands still until it is moved."""

import pytest

from common.rate_limited_warning import RateLimitedWarning
from common.ratelimit import TokenBucket
from edgeai.errors import Overloaded
from edgeai.ids import NodeName
from globalmanager.edge.door.admission import (
    FREE_AGAIN_S,
    REMEMBERED_NODES,
    AddressBuckets,
    FreeHandshakes,
    Lobby,
    Toll,
    retry_after,
)


def test_the_lobby_is_bounded_per_address_and_in_total() -> None:
    lobby = Lobby(total=3, per_address=2)
    visits = [lobby.enter(who) for who in "aaabb"]
    assert [visit is not None for visit in visits] == [True, True, False, True, False]
    assert visits[0] is not None
    visits[0].leave()
    visits[0].leave()
    assert lobby.enter("b") is not None
    assert len(lobby) == 3


def test_the_addresses_of_one_host_share_the_places_of_the_lobby() -> None:
    lobby = Lobby(total=8, per_address=2)
    visits = [lobby.enter(f"2001:db8::{n}") for n in range(3)]
    assert [visit is not None for visit in visits] == [True, True, False]
    assert lobby.enter("2001:db8:0:1::1") is not None


@pytest.mark.parametrize(("draw", "header"), [(0.0, "5"), (0.5, "10"), (1.0, "15")])
def test_those_turned_away_are_spread_around_the_mean(draw: float, header: str) -> None:
    assert retry_after(10, lambda low, high: low + draw * (high - low)) == header


def test_a_toll_is_given_back_once_to_every_bucket_that_was_paid() -> None:
    buckets = [TokenBucket(qps=0.001, burst=2, max_wait_s=0.0, part="test") for _ in range(2)]
    other, toll = Toll(), Toll()
    for bucket in buckets:
        other.pay(bucket, 0.0)
        toll.pay(bucket, 0.0)
    toll.give_back()
    toll.give_back()
    for bucket in buckets:
        assert bucket.reserve(0.0) == 0.0
        with pytest.raises(Overloaded):
            bucket.reserve(0.0)


def test_one_handshake_of_a_node_in_a_minute_is_free() -> None:
    free, a, b = FreeHandshakes(), NodeName("a"), NodeName("b")
    assert [free.take(a, 0.0), free.take(b, 1.0), free.take(a, 1.0)] == [True, True, False]
    assert not free.take(a, FREE_AGAIN_S - 0.1)
    assert free.take(a, FREE_AGAIN_S)
    assert not free.take(a, FREE_AGAIN_S + 1.0)


def test_a_fleet_of_any_size_takes_bounded_memory() -> None:
    free = FreeHandshakes()
    for number in range(REMEMBERED_NODES + 5):
        assert free.take(NodeName(f"n{number}"), 0.0)
    assert len(free._last) == REMEMBERED_NODES


def buckets(size: int = 8) -> AddressBuckets:
    return AddressBuckets(qps=1.0, burst=1, max_wait_s=0.0, part="test", size=size)


SAME_PACE = {
    "one IPv4 address": ("192.0.2.1", "192.0.2.1", True),
    "neighbours in IPv4": ("192.0.2.1", "192.0.2.2", False),
    "IPv4, mapped into IPv6": ("192.0.2.1", "::ffff:192.0.2.1", True),
    "one /64": ("2001:db8::1", "2001:db8::ffff:1", True),
    "two /64": ("2001:db8::1", "2001:db8:0:1::1", False),
    "one link": ("fe80::1%eth0", "fe80::2%eth0", True),
    "no address": ("", "", True),
}


@pytest.mark.parametrize(("one", "other", "same"), SAME_PACE.values(), ids=SAME_PACE.keys())
def test_who_shares_a_pace(one: str, other: str, same: bool) -> None:
    table = buckets()
    assert (table.bucket(one, 0.0) is table.bucket(other, 0.0)) == same


def test_the_paces_of_addresses_are_bounded_and_the_longest_unused_is_forgotten() -> None:
    table = buckets(size=2)
    first, second = used(table, "192.0.2.1"), used(table, "192.0.2.2")
    assert table.bucket("192.0.2.1", 0.0) is first
    used(table, "192.0.2.3")
    assert len(table) == 2
    assert table.bucket("192.0.2.1", 0.0) is first
    assert table.bucket("192.0.2.2", 0.0) is not second


def used(table: AddressBuckets, address: str) -> TokenBucket:
    bucket = table.bucket(address, 0.0)
    bucket.reserve(0.0)
    return bucket


def test_a_complaint_is_said_once_in_a_while_with_the_number_of_those_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [100.0]
    warning = RateLimitedWarning("somebody knocks", every_s=10.0, clock=lambda: now[0])
    for _ in range(4):
        warning.log(peer="192.0.2.1")
    now[0] += 10.0
    warning.log(peer="192.0.2.2")
    first, second = capsys.readouterr().out.strip().splitlines()
    assert "somebody knocks" in first
    assert "left_out" not in first
    assert "left_out=3" in second
    assert "192.0.2.2" in second
