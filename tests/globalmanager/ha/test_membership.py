"""A replica among others: what it waits for, and what it leaves alone."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from aiohttp import web

from edgeai.kube.client import KubeClient
from globalmanager.ha.contacts import Contacts
from globalmanager.ha.elector import LEASE_NAME, REPLICA_LABEL, Identity, LeaseTiming
from globalmanager.ha.fence import Fence
from globalmanager.ha.membership import Membership
from globalmanager.ha.presence import object_name
from tests.globalmanager.scripted_api import Answer, ScriptedApi
from tests.support.clock import Clock
from tests.support.waiting import async_eventually

LEASES_PATH: Final = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
LEASE_PATH: Final = f"{LEASES_PATH}/{LEASE_NAME}"
CONFIG_MAPS_PATH: Final = "/api/v1/namespaces/default/configmaps"
LEADERS: Final = {
    "metadata": {"name": LEASE_NAME, "namespace": "default"},
    "spec": {"holderIdentity": "another_1", "leaseDurationSeconds": 15, "leaseTransitions": 4},
}
DEAD: Final = {
    "metadata": {
        "name": object_name("dead"),
        "namespace": "default",
        "uid": "uid-dead",
        "resourceVersion": "1",
        "labels": {REPLICA_LABEL: "dead"},
    },
    "spec": {"holderIdentity": "dead", "leaseDurationSeconds": 15},
}


class ReplicasApi:
    """The API as far as replicas use it: another one leads, and one has died."""

    def __init__(self, api: ScriptedApi) -> None:
        self._api = api
        self.unreadable = ""
        self._answers: dict[str, Answer] = {
            LEASE_PATH: api.json(LEADERS),
            LEASES_PATH: api.listing(DEAD, version=1),
            CONFIG_MAPS_PATH: api.listing(version=1),
        }
        api.lists = api.others = [self._answer]
        api.watches = [api.stream(then="hang")]

    @property
    def deleted(self) -> list[str]:
        return [request.path for request in self._api.seen if request.method == "DELETE"]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == self.unreadable:
            return await self._api.failure(403, "Forbidden", "not for you")(request)
        answer = self._answers.get(request.path, self._api.json({}))
        return await answer(request)


@pytest.fixture
def cluster(scripted: ScriptedApi) -> ReplicasApi:
    return ReplicasApi(scripted)


@pytest.fixture
def fence() -> Fence:
    return Fence()


@pytest.fixture
def membership(
    cluster: ReplicasApi, scripted_client: KubeClient, fence: Fence, clock: Clock
) -> Membership:
    return Membership(
        scripted_client,
        namespace="default",
        identity=Identity.of_this_process(""),
        timing=LeaseTiming(retry_s=0.1),
        fence=fence,
        contacts=Contacts(),
        clock=clock,
    )


@asynccontextmanager
async def running(membership: Membership) -> AsyncIterator[None]:
    """This replica knows the others and stands for election, but is not known to them."""
    tasks = [
        asyncio.create_task(membership.roster.run(), name="roster"),
        asyncio.create_task(membership.elector.run(), name="elector"),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


UNREADABLE: dict[str, tuple[str, str]] = {
    "the leaders' Lease": (LEASE_PATH, "Lease: get leases"),
    "the replicas' Leases": (LEASES_PATH, "leases.coordination.k8s.io of the other replicas: "),
    "the replicas' ConfigMaps": (CONFIG_MAPS_PATH, "configmaps of the other replicas: "),
}


@pytest.mark.parametrize(("path", "named"), UNREADABLE.values(), ids=UNREADABLE)
async def test_what_cannot_be_read_of_the_others_is_waited_for_by_name(
    cluster: ReplicasApi, membership: Membership, path: str, named: str
) -> None:
    cluster.unreadable = path
    async with running(membership):
        await async_eventually(
            "one refusal, and nothing else unknown",
            lambda: (
                [one for one in membership.unknown() if "not for you" in one]
                and len(membership.unknown()) == 1
            ),
        )
        [problem] = membership.unknown()
        assert problem.startswith(named)
        cluster.unreadable = ""
        await async_eventually("all known", lambda: not membership.unknown())


async def test_only_a_leader_deletes_what_the_dead_left(
    cluster: ReplicasApi, membership: Membership, fence: Fence, clock: Clock
) -> None:
    roster = membership.roster
    async with running(membership):
        await async_eventually("the others", lambda: not roster.problem)
        clock.now_s += 16
        roster.mark_dead()
        clock.now_s += 60
        await roster.delete_dead()
        assert cluster.deleted == []
        fence.open_until(math.inf)
        await roster.delete_dead()
    assert cluster.deleted == [f"{LEASES_PATH}/{object_name('dead')}"]
