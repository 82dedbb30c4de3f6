"""The rate has shares: who is in use gets at least its own, and what nobody else wants."""

import asyncio
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgeai.errors import Overloaded
from edgeai.kube.rate import PARTS, Share, SharedRate

QPS = 100.0
BURST = 20


class Run:
    """A rate on a clock of its own, and who passed when."""

    def __init__(self, qps: float = QPS, burst: int = BURST, max_wait_s: float = 1e6) -> None:
        self.loop = asyncio.new_event_loop()  # only for its futures
        self.rate = SharedRate(qps=qps, burst=burst, max_wait_s=max_wait_s)
        self.passed: list[tuple[float, Share]] = []
        self._share_of: dict[int, Share] = {}
        self._kept: list[object] = []

    def enter(self, share: Share, now: float, times: int = 1) -> None:
        for _ in range(times):
            ticket = self.loop.create_future()
            self._kept.append(ticket)
            self._share_of[id(ticket)] = share
            self.rate.enter(share, ticket, now)

    def go(self, now: float) -> None:
        self.passed += [(now, self._share_of[id(ticket)]) for ticket in self.rate.passing(now)]

    def counts(self, since: float = 0.0) -> Counter[Share]:
        return Counter(share for at, share in self.passed if at >= since)

    def close(self) -> None:
        self.loop.close()


def test_alone_each_gets_the_whole_burst_and_the_whole_rate() -> None:
    for share in Share:
        run = Run()
        run.enter(share, 0.0, 1000)
        run.go(0.0)
        assert len(run.passed) == BURST
        for tick in range(1, 501):
            run.go(tick / 100)
        assert len(run.passed) == BURST + 500
        run.close()


def test_who_comes_to_a_long_queue_of_others_waits_for_no_more_than_a_few() -> None:
    run = Run()
    run.enter(Share.PLANS, 0.0, 5000)
    for tick in range(100):
        run.go(tick / 100)
    run.enter(Share.REPORTS, 1.0)
    run.go(1.01)
    run.go(1.02)
    assert run.counts()[Share.REPORTS] == 1
    run.close()


@example(busy={Share.PLANS}, ticks=[0.125, 0.0625, 0.19921875, 0.109375, 0.19921875], before={})
@given(
    busy=st.sets(st.sampled_from(Share), min_size=1),
    ticks=st.lists(st.floats(0.001, 0.25), min_size=5, max_size=25),
    before=st.dictionaries(st.sampled_from(Share), st.integers(0, 60)),
)
def test_under_saturation_each_gets_its_share_and_all_get_everything(
    busy: set[Share], ticks: list[float], before: dict[Share, int]
) -> None:
    """Whatever was asked for before."""
    run = Run()
    for share, times in before.items():
        run.enter(share, 0.0, times)
    start = 1000.0
    for second in range(20):  # until all of that has passed, and the bucket is full
        run.go(start - 100.0 + second)
    run.passed.clear()
    now = start
    for share in busy:
        run.enter(share, now, 700)
    for tick in ticks:
        run.go(now)
        now += tick
    run.go(now)
    run.close()
    counts, tokens = run.counts(), BURST + QPS * (now - start)
    # A bucket that is full takes nothing more: tokens of a tick longer than the burst are lost.
    assert sum(counts.values()) <= tokens + 1e-3
    passed = sum(counts.values())
    parts = sum(PARTS[share] for share in busy)
    for share in busy:
        assert counts[share] >= passed * PARTS[share] / parts - len(Share)
    # The bucket may still have a part of a token when a tick begins.
    if all(tick * QPS <= BURST - 1 for tick in ticks):
        assert passed >= tokens - 2


@given(st.lists(st.tuples(st.floats(0, 0.5), st.sampled_from(Share)), min_size=1, max_size=60))
def test_no_second_sees_more_than_burst_plus_rate(arrivals: list[tuple[float, Share]]) -> None:
    run = Run(qps=20, burst=5)
    now = 0.0
    for gap, share in arrivals:
        now += gap
        run.enter(share, now, 3)
        run.go(now)
    for tick in range(200):
        run.go(now + tick / 20)
    run.close()
    used = [at for at, _ in run.passed]
    assert len(used) == 3 * len(arrivals)
    for start in used:
        assert sum(start <= at < start + 1 for at in used) <= 26


def test_a_share_keeps_its_order() -> None:
    run = Run(burst=1)
    tickets = [run.loop.create_future() for _ in range(5)]
    for ticket in tickets:
        run.rate.enter(Share.REPORTS, ticket, 0.0)
    assert [t for now in range(9) for t in run.rate.passing(now / 10)] == tickets
    run.close()


def test_nothing_passes_while_held() -> None:
    run = Run()
    run.rate.hold(0.0, 5.0)
    run.enter(Share.PLANS, 1.0)
    run.go(4.9)
    assert run.passed == []
    run.go(5.0)
    assert len(run.passed) == 1
    run.close()


def test_who_would_wait_too_long_is_turned_away() -> None:
    run = Run(qps=10, burst=1, max_wait_s=2.0)
    places = round(2.0 * 10 * PARTS[Share.REPORTS])
    run.enter(Share.REPORTS, 0.0, places + 1)
    with pytest.raises(Overloaded):
        run.enter(Share.REPORTS, 0.0)
    run.enter(Share.PLANS, 0.0)  # has a queue of its own
    run.rate.hold(0.0, 10.0)
    with pytest.raises(Overloaded):
        run.enter(Share.PLANS, 0.0)
    run.close()


@pytest.mark.looptime
async def test_acquire_waits_for_its_turn() -> None:
    rate = SharedRate(qps=2, burst=1)
    started = asyncio.get_running_loop().time()
    for _ in range(4):
        await rate.acquire(Share.PLANS)
    assert asyncio.get_running_loop().time() - started == pytest.approx(1.5)


@pytest.mark.looptime
async def test_who_gives_up_waiting_takes_no_token() -> None:
    rate = SharedRate(qps=1, burst=1)
    await rate.acquire(Share.PLANS)
    started = asyncio.get_running_loop().time()
    for _ in range(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await rate.acquire(Share.PLANS)
    await rate.acquire(Share.REPORTS)
    assert asyncio.get_running_loop().time() - started == pytest.approx(1.0)


@pytest.mark.looptime
async def test_retry_after_holds_those_who_wait_already() -> None:
    rate = SharedRate(qps=10, burst=1)
    await rate.acquire(Share.PLANS)
    started = asyncio.get_running_loop().time()
    waiting = asyncio.create_task(rate.acquire(Share.PLANS), name="waiting")
    await asyncio.sleep(0.05)
    rate.hold(asyncio.get_running_loop().time(), 3.0)
    await waiting
    assert asyncio.get_running_loop().time() - started == pytest.approx(3.05)
