"""Several addresses of the GlobalManager: configured ones, and the one that a replica names."""

import contextlib
import functools
from collections.abc import AsyncIterator

import pytest

from common import wire
from edgeai.backoff import Backoff
from localcontroller.ledger.ledger import Ledger
from localcontroller.link.endpoint import Addresses, Endpoint
from localcontroller.link.link import Delays, Link
from localcontroller.metrics import Metrics
from tests.localcontroller.builders import TIMING
from tests.localcontroller.cloud import Cloud, running_cloud
from tests.support.tasks import beside
from tests.support.waiting import async_eventually

A, B, C = "wss://a:9000", "wss://b:9000", "wss://c:9000"
NOWHERE = "ws://127.0.0.1:1"
AT_ONCE = Backoff(base_s=0.01, max_s=0.05)


def test_the_first_address_is_drawn_by_lot_and_the_others_follow() -> None:
    addresses = Addresses([A, B, C], choose=lambda count: count - 1)
    seen = [addresses.current]
    for _ in range(3):
        addresses.leave()
        seen.append(addresses.current)
    assert seen == [C, A, B, C]


def test_an_address_that_a_replica_names_counts_until_it_fails() -> None:
    addresses = Addresses([A], choose=lambda _: 0)
    assert addresses.use(B)
    assert addresses.current == B
    addresses.leave()
    assert addresses.current == A


@pytest.mark.parametrize(
    "named",
    ["", "ws://b:9000", "https://b:9000", "b:9000", "wss://", "wss://b:x", "wss://u:p@b:9000"],
)
def test_an_address_that_is_unsafe_or_none_is_not_used(named: str) -> None:
    addresses = Addresses([A, B], choose=lambda _: 0)
    assert not addresses.use(named)
    assert addresses.current == B, "a configured one"


# ---- the link ----


@contextlib.asynccontextmanager
async def linked(ledger: Ledger, *urls: str, usual: Backoff = AT_ONCE) -> AsyncIterator[Link]:
    """A link that dials the first of these addresses first, and moves without a delay."""
    link = Link(
        Endpoint(addresses=Addresses(urls, choose=lambda _: 0), node="edge-1"),
        ledger,
        Metrics(),
        timing=TIMING,
        delays=Delays(usual=usual, rival=usual, credential_s=30),
        uniform=lambda low, _high: low,
    )
    async with beside(link.run(), "link") as task:
        yield link
        assert not task.done()


@pytest.fixture
async def first() -> AsyncIterator[Cloud]:
    async with running_cloud() as cloud:
        yield cloud


@pytest.fixture
async def second() -> AsyncIterator[Cloud]:
    async with running_cloud() as cloud:
        yield cloud


async def test_an_edge_goes_where_its_replica_sends_it(
    ledger: Ledger, first: Cloud, second: Cloud
) -> None:
    async with linked(ledger, first.url) as link:
        await first.until_synced()
        await first.sockets[-1].close(wire.Close.MOVED, second.url)
        await second.until_synced()
        assert link.state.failures == 0, "nothing has failed"
        second.cut()
        await first.until_synced(2)


async def test_an_edge_that_is_sent_to_a_dead_replica_comes_back(
    ledger: Ledger, first: Cloud
) -> None:
    async with linked(ledger, first.url):
        await first.until_synced()
        await first.sockets[-1].close(wire.Close.MOVED, NOWHERE)
        await first.until_synced(2)


async def test_an_edge_that_is_sent_away_without_an_address_dials_a_configured_one(
    ledger: Ledger, first: Cloud, second: Cloud
) -> None:
    async with linked(ledger, first.url, second.url):
        await first.until_synced()
        await first.sockets[-1].close(wire.Close.MOVED, "")
        await second.until_synced()


async def test_an_edge_whose_replica_ends_goes_to_the_next_one(
    ledger: Ledger, first: Cloud, second: Cloud
) -> None:
    async with linked(ledger, NOWHERE, first.url, second.url):
        await first.until_synced()
        await first.stop()
        await second.until_synced()


async def test_replicas_that_send_an_edge_on_and_on_are_dialled_less_and_less(
    ledger: Ledger, first: Cloud
) -> None:
    delays: list[float] = []

    def has_more(count: int) -> bool:
        return len(delays) > count

    def note(low: float, high: float) -> float:
        delays.append(high)
        return low

    (first.greeting,) = wire.encode(wire.Welcome(wire.VERSIONS[-1], 1, "s"))
    first.answers = [(500, {})]
    async with linked(
        ledger, first.url, usual=Backoff(base_s=0.01, max_s=60.0, uniform=note)
    ) as link:
        for count in range(1, 4):
            await async_eventually("a session", lambda: link.state.connected)
            socket = first.sockets.pop()
            await socket.close(wire.Close.MOVED, first.url)
            await async_eventually("a longer delay", functools.partial(has_more, count))
        assert link.state.failures == 1, "only the first answer was a failure"
    assert delays == sorted(delays)
    assert delays[-1] >= 0.04
