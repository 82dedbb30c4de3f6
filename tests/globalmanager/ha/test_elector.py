"""The elector against a scripted API and a clock of its own: who leads, and until when exactly."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from aiohttp import web

from edgeai import times
from edgeai.kube.client import KubeClient
from edgeai.kube.sender import ClientSettings
from globalmanager.ha.elector import Elector, Identity, LeaseTiming
from globalmanager.ha.fence import Fence
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.clock import Clock
from tests.support.kubeconfig import write_kubeconfig
from tests.support.waiting import async_eventually

ME: Final = Identity("pod-1", "aaaa")
OTHER: Final = "pod-2_bbbb"
TIMING: Final = LeaseTiming(duration_s=15, renew_deadline_s=10, retry_s=2)
NOW: Final = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
CREATED: Final = "2026-03-04T05:06:09Z"  # by the clock of the API server
FIRST_EPOCH: Final = int(times.parse(CREATED).timestamp()) // 2 + 1


class LeaseClock(Clock):
    """`wall` stands still by itself."""

    wall = NOW

    def utcnow(self) -> datetime:
        return self.wall


class LeaseApi:
    """One Lease with optimistic concurrency; `fault`, while set, answers instead."""

    def __init__(self, scripted: ScriptedApi) -> None:
        self.lease: dict[str, Any] | None = None
        self.creation = CREATED  # of the next Lease
        self.created = ""
        self.fault: str = ""
        self.spent_s = 0.0  # by each request, on the test's clock
        self.clock = LeaseClock()
        self._scripted = scripted
        self._version = 0
        scripted.others = [self.answer]

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def hold(self, holder: str | None, *, epoch: int = 7, **spec: Any) -> None:
        """Somebody else writes the Lease."""
        content = {"holderIdentity": holder, "leaseTransitions": epoch, "leaseDurationSeconds": 15}
        self._store({**content, "renewTime": str(self._version), **spec})

    def _store(self, spec: dict[str, Any]) -> None:
        self._version += 1
        metadata = {
            "name": "edgeai-globalmanager",
            "namespace": "system",
            "creationTimestamp": self.creation if self.lease is None else self.created,
        }
        self.created = metadata["creationTimestamp"]
        self.lease = {
            "metadata": {**metadata, "resourceVersion": str(self._version)},
            "spec": spec,
        }

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.clock.now_s += self.spent_s
        if self.fault == "hang":
            return await self._scripted.hang()(request)
        if self.fault == "lost answer":
            await self._healthy(request)
            return await self._scripted.failure(500, "InternalError")(request)
        if self.fault:
            return await self._scripted.failure(int(self.fault), "")(request)
        return await self._healthy(request)

    async def _healthy(self, request: web.Request) -> web.StreamResponse:
        body = msgspec.json.decode(await request.read() or b"{}")
        if request.method == "GET" and self.lease is None:
            return await self._scripted.failure(404, "NotFound")(request)
        if request.method == "POST" and self.lease is not None:
            return await self._scripted.failure(409, "AlreadyExists")(request)
        if request.method == "PUT" and self._is_stale(body):
            return await self._scripted.failure(409, "Conflict")(request)
        if request.method in ("POST", "PUT"):
            self._store(body["spec"])
        return await self._scripted.json(self.lease)(request)

    def _is_stale(self, body: dict[str, Any]) -> bool:
        return self.lease is None or (
            body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]
        )


class Candidate:
    """An elector with its fence, on the API's clock."""

    def __init__(
        self,
        client: KubeClient,
        api: LeaseApi,
        identity: Identity = ME,
        timing: LeaseTiming = TIMING,
    ) -> None:
        self.identity = identity
        self.changes: list[bool] = []
        self.fence = Fence(api.clock)
        self.elector = Elector(
            client,
            namespace="system",
            identity=identity,
            fence=self.fence,
            timing=timing,
            clock=api.clock,
        )
        self.elector.subscribe(self.changes.append)


@pytest.fixture
async def client(scripted: ScriptedApi, tmp_path: Path) -> AsyncIterator[KubeClient]:
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    settings = ClientSettings(deadline_s=2.0)
    async with await KubeClient.from_kubeconfig(path, settings) as client:
        yield client


@pytest.fixture
def api(scripted: ScriptedApi) -> LeaseApi:
    return LeaseApi(scripted)


@pytest.fixture
def me(client: KubeClient, api: LeaseApi) -> Candidate:
    return Candidate(client, api)


# ---- to acquire --------------------------------------------------------------------------------


async def test_an_absent_lease_is_taken_with_an_epoch_above_any_there_was(
    api: LeaseApi, me: Candidate
) -> None:
    """Edges may remember the epochs of a Lease that was deleted."""
    await me.elector.look()
    assert me.changes == [True]
    assert me.fence.left_s() == 10
    assert api.spec["holderIdentity"] == "pod-1_aaaa"
    assert api.spec["leaseTransitions"] == me.elector.epoch == FIRST_EPOCH
    assert api.spec["renewTime"] == "2026-03-04T05:06:07.000000Z"


@pytest.mark.parametrize("years", [-60, 10])
async def test_the_first_epoch_follows_the_clock_of_the_api_server(
    api: LeaseApi, me: Candidate, years: int
) -> None:
    api.clock.wall = NOW.replace(year=NOW.year + years)
    await me.elector.look()
    assert (me.changes, api.spec["leaseTransitions"]) == ([True], FIRST_EPOCH)


async def test_the_epoch_of_a_later_lease_is_above_twenty_reigns_in_a_minute(
    api: LeaseApi, client: KubeClient
) -> None:
    """As after some upgrades, when edgeai is removed with its namespace and installed again."""
    last = FIRST_EPOCH + 20
    api.hold(OTHER, epoch=last)
    api.lease, api.creation = None, "2026-03-04T05:07:09Z"
    newcomer = Candidate(client, api)
    await newcomer.elector.look()
    assert newcomer.elector.epoch > last


async def test_a_lease_that_was_created_and_not_taken_yet_is_taken_with_the_same_epoch(
    api: LeaseApi, me: Candidate
) -> None:
    api._store({"leaseTransitions": 0})
    await me.elector.look()
    assert (me.changes, api.spec["leaseTransitions"]) == ([True], FIRST_EPOCH)


async def test_an_administrator_may_raise_the_epoch(api: LeaseApi, me: Candidate) -> None:
    """Edges that saw a greater epoch than the Lease has refuse every GlobalManager until then."""
    await me.elector.look()
    api._store({**api.spec, "leaseTransitions": 2 * FIRST_EPOCH})
    for _ in range(3):
        await me.elector.look()
    assert (me.changes, me.elector.leads) == ([True], True)
    assert me.elector.epoch == api.spec["leaseTransitions"] == 2 * FIRST_EPOCH


FREE = {
    "released": "",
    "held by an earlier process of this replica": "pod-1_zzzz",
    "never held": None,
}


@pytest.mark.parametrize("holder", FREE.values(), ids=FREE)
async def test_a_free_lease_is_taken_at_once_and_the_epoch_grows(
    api: LeaseApi, me: Candidate, holder: str | None
) -> None:
    api.hold(holder, epoch=7)
    await me.elector.look()
    assert (me.elector.leads, api.spec["leaseTransitions"], me.elector.epoch) == (True, 8, 8)


SKEWS = {
    "clocks agree": timedelta(0),
    "the holder's clock is a day ahead": timedelta(days=1),
    "the holder's clock is a day behind": timedelta(days=-1),
}


@pytest.mark.parametrize("skew", SKEWS.values(), ids=SKEWS)
async def test_anothers_lease_runs_out_on_the_own_clock_alone(
    api: LeaseApi, me: Candidate, skew: timedelta
) -> None:
    api.hold(OTHER, renewTime=(NOW + skew).isoformat())
    await me.elector.look()
    api.clock.now_s += 14.9
    await me.elector.look()
    assert not me.elector.leads
    assert me.elector.epoch == 7, "a follower tells its edges the epoch that it saw"
    api.clock.now_s += 0.2
    await me.elector.look()
    assert me.elector.leads


async def test_each_renewal_that_is_seen_starts_the_time_anew(api: LeaseApi, me: Candidate) -> None:
    for number in range(5):
        api.hold(OTHER, renewTime=f"renewal {number}")
        await me.elector.look()
        api.clock.now_s += 14
    await me.elector.look()
    assert me.changes == []


async def test_the_holders_own_duration_counts(api: LeaseApi, me: Candidate) -> None:
    api.hold(OTHER, leaseDurationSeconds=60)
    await me.elector.look()
    api.clock.now_s += 59
    await me.elector.look()
    assert not me.elector.leads


@pytest.mark.parametrize("phase", range(12))
async def test_a_dead_leader_is_followed_after_one_lease_and_one_retry(
    client: KubeClient, api: LeaseApi, phase: int
) -> None:
    """Counted from the last renewal, wherever in the follower's pause that renewal came."""
    timing = LeaseTiming(duration_s=15, renew_deadline_s=10, retry_s=1.5)
    me = Candidate(client, api, timing=timing)
    api.hold(OTHER, renewTime="first")
    await me.elector.look()
    api.clock.now_s += phase / 12 * me.elector.pause_s()
    api.hold(OTHER, renewTime="last")
    died_at, looks = api.clock.now_s, 0
    while not me.elector.leads:
        looks += 1
        api.clock.now_s += me.elector.pause_s()
        await me.elector.look()
    assert 14.999 < api.clock.now_s - died_at < 15.001 + timing.retry_s
    assert looks < 25, "the follower asked too often"


async def test_a_follower_that_cannot_take_a_free_lease_pauses_as_usual(
    api: LeaseApi, me: Candidate
) -> None:
    api.hold(OTHER)
    await me.elector.look()
    api.clock.now_s += 20
    api.fault = "500"
    await me.elector.look()
    assert me.elector.pause_s() >= TIMING.retry_s / 2


async def test_of_two_that_take_it_at_once_one_leads(client: KubeClient, api: LeaseApi) -> None:
    api.hold("")
    candidates = [Candidate(client, api, Identity(f"pod-{n}", "x")) for n in range(6)]
    await asyncio.gather(*(each.elector.look() for each in candidates))
    (leader,) = (each for each in candidates if each.elector.leads)
    assert api.spec["holderIdentity"] == str(leader.identity)
    assert [each.fence.left_s() > 0 for each in candidates].count(True) == 1


# ---- to renew, and to lose ---------------------------------------------------------------------


async def test_a_renewal_keeps_the_epoch_and_costs_one_request(
    api: LeaseApi, me: Candidate, scripted: ScriptedApi
) -> None:
    await me.elector.look()
    asked = len(scripted.seen)
    api.clock.now_s += 5
    await me.elector.look()
    assert (me.fence.left_s(), me.changes) == (10, [True])
    assert api.spec["leaseTransitions"] == FIRST_EPOCH
    assert [request.method for request in scripted.seen[asked:]] == ["PUT"]


async def test_the_reign_counts_from_before_the_request(api: LeaseApi, me: Candidate) -> None:
    """The API server may have written, and others seen, the renewal long before it answered."""
    api.lease = None
    api.spent_s = 3.0
    await me.elector.look()
    assert me.fence.left_s() == 7


AWAY = {
    "answers with 500": "500",
    "answers with 403": "403",
    "answers with 429": "429",
    "does not answer": "hang",
}


@pytest.mark.parametrize("fault", AWAY.values(), ids=AWAY)
async def test_while_the_api_is_away_the_reign_ends_by_itself(
    api: LeaseApi, me: Candidate, fault: str
) -> None:
    await me.elector.look()
    api.fault = fault
    api.clock.now_s += 9.9
    await me.elector.look()
    assert me.elector.leads
    assert me.elector.problem
    api.clock.now_s += 0.2
    assert me.fence.left_s() == 0, "the fence needs nobody to shut it"
    await me.elector.look()
    assert me.changes == [True, False]


async def test_who_comes_back_after_its_time_begins_a_new_reign(
    api: LeaseApi, me: Candidate
) -> None:
    await me.elector.look()
    api.clock.now_s += 11
    await me.elector.look()
    assert me.changes == [True, False, True]
    assert api.spec["leaseTransitions"] == FIRST_EPOCH + 1


async def test_who_was_followed_meanwhile_follows(api: LeaseApi, me: Candidate) -> None:
    await me.elector.look()
    api.clock.now_s += 60
    api.hold(OTHER, epoch=FIRST_EPOCH + 1)
    await me.elector.look()
    assert me.changes == [True, False]
    assert (me.elector.epoch, me.elector.holder) == (FIRST_EPOCH + 1, OTHER)
    assert api.spec["holderIdentity"] == OTHER


async def test_a_lease_that_is_taken_by_force_is_given_up(api: LeaseApi, me: Candidate) -> None:
    await me.elector.look()
    api.hold(OTHER, epoch=FIRST_EPOCH + 1)
    await me.elector.look()  # meets the conflict
    await me.elector.look()  # sees by whom
    assert me.changes == [True, False]
    assert me.fence.left_s() == 0


async def test_a_renewal_whose_answer_is_lost_is_made_again(api: LeaseApi, me: Candidate) -> None:
    await me.elector.look()
    api.fault = "lost answer"
    await me.elector.look()
    api.fault = ""
    api.clock.now_s += 5
    await me.elector.look()
    assert (me.changes, me.fence.left_s()) == ([True], 10)
    assert api.spec["leaseTransitions"] == FIRST_EPOCH


async def test_a_deleted_lease_is_made_again_with_a_higher_epoch(
    api: LeaseApi, me: Candidate
) -> None:
    await me.elector.look()
    api.lease = None
    await me.elector.look()
    await me.elector.look()
    assert me.elector.leads
    assert api.spec["leaseTransitions"] > FIRST_EPOCH


# ---- to end ------------------------------------------------------------------------------------


async def test_who_ends_gives_the_lease_up_after_it_stopped_writing(
    api: LeaseApi, me: Candidate
) -> None:
    task = asyncio.create_task(me.elector.run(), name="elector")
    await async_eventually("a leader", lambda: me.elector.leads)
    task.cancel()
    await asyncio.wait([task])
    assert (api.spec["holderIdentity"], me.changes) == ("", [True, False])
    assert api.spec["leaseTransitions"] == FIRST_EPOCH, "the next one's is higher"
    assert me.fence.left_s() == 0


async def test_who_ends_leaves_a_lease_that_another_took(api: LeaseApi, me: Candidate) -> None:
    api.hold(None)
    running = asyncio.create_task(me.elector.run(), name="elector")
    await async_eventually("a leader", lambda: me.elector.leads)
    api.hold(OTHER, epoch=9)
    running.cancel()
    await asyncio.wait([running])
    assert (api.spec["holderIdentity"], api.spec["leaseTransitions"]) == (OTHER, 9)


async def test_a_lease_that_was_put_back_does_not_put_the_epoch_back(
    api: LeaseApi, me: Candidate
) -> None:
    api.hold(OTHER, epoch=9)
    await me.elector.look()
    api.hold(None, epoch=3)
    await me.elector.look()
    assert api.spec["leaseTransitions"] == 10


async def test_who_follows_leaves_the_lease_alone_at_its_end(
    api: LeaseApi, me: Candidate, scripted: ScriptedApi
) -> None:
    api.hold(OTHER)
    task = asyncio.create_task(me.elector.run(), name="elector")
    await async_eventually("a look at the Lease", lambda: not me.elector.problem)
    task.cancel()
    await asyncio.wait([task])
    assert {request.method for request in scripted.seen} == {"GET"}


async def test_news_of_the_lease_ends_the_pause(
    api: LeaseApi, client: KubeClient, scripted: ScriptedApi
) -> None:
    """Who hears that it was released does not sleep on."""
    api.hold(OTHER)
    me = Candidate(
        client, api, timing=LeaseTiming(retry_s=600, renew_deadline_s=1e3, duration_s=1e4)
    )
    task = asyncio.create_task(me.elector.run(), name="elector")
    try:
        await async_eventually("a look at the Lease", lambda: not me.elector.problem)
        api.hold("", epoch=7)
        me.elector.look_soon(api.spec)
        await async_eventually("a leader", lambda: me.elector.leads)
    finally:
        task.cancel()
        await asyncio.wait([task])


def test_a_named_replica_succeeds_its_own_past_only() -> None:
    before, after = (Identity.of_this_process("pod-1") for _ in range(2))
    assert after.is_successor_of(str(before))
    assert not after.is_successor_of(str(after))
    assert not after.is_successor_of(str(Identity.of_this_process("pod-2")))
    assert not after.is_successor_of("")


def test_without_a_name_no_replica_is_the_successor_of_another() -> None:
    """Two hosts, or two containers, may have the same host name."""
    before, after = (Identity.of_this_process("") for _ in range(2))
    assert not after.is_successor_of(str(before))


BAD_TIMINGS = {
    "renewed for longer than it lasts": (10.0, 15.0, 2.0),
    "looked at less often than it is renewed": (15.0, 10.0, 12.0),
    "no pause": (15.0, 10.0, 0.0),
    "no end": (float("inf"), 10.0, 2.0),
}


@pytest.mark.parametrize("times", BAD_TIMINGS.values(), ids=BAD_TIMINGS)
def test_times_that_would_let_two_lead_are_refused(times: tuple[float, float, float]) -> None:
    duration_s, renew_deadline_s, retry_s = times
    with pytest.raises(ValueError, match="need 0 < retry"):
        LeaseTiming(duration_s=duration_s, renew_deadline_s=renew_deadline_s, retry_s=retry_s)
