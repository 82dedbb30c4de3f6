"""A replica among others: how it is told apart, what it waits for, and what it leaves alone."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from common.errors import SettingsError
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.downstream import DesiredSets
from globalmanager.edge.sessions.inbox import Inbox
from globalmanager.edge.sessions.registry import Sessions
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.ha.elector import LEASE_NAME, REPLICA_LABEL
from globalmanager.ha.presence import object_name
from globalmanager.kube.client import KubeClient
from globalmanager.replica import Replica, end, identify, lease_timing
from globalmanager.settings import Settings
from globalmanager.startup import Startup
from tests.globalmanager.scripted_api import Answer, ScriptedApi
from tests.globalmanager.waiting import until

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


def test_times_that_would_let_two_lead_are_refused_with_their_flags() -> None:
    settings = Settings(lease_duration_s=10, lease_renew_deadline_s=15)
    with pytest.raises(SettingsError, match=r"--lease-duration-s.*renew deadline 15"):
        lease_timing(settings)


def test_a_named_replica_succeeds_its_own_past_only() -> None:
    before, after = identify("pod-1"), identify("pod-1")
    assert after.is_successor_of(str(before))
    assert not after.is_successor_of(str(after))
    assert not after.is_successor_of(str(identify("pod-2")))
    assert not after.is_successor_of("")


def test_without_a_name_nobody_is_anybodys_successor() -> None:
    """Two hosts, or two containers, may have the same host name."""
    assert not identify("").is_successor_of(str(identify("")))


# ---- what it asks the API, and what it waits for ------------------------------------------------


class Cluster:
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
def cluster(scripted: ScriptedApi) -> Cluster:
    return Cluster(scripted)


def sessions_of(registry: CollectorRegistry) -> Sessions:
    """As app builds them; no edge comes."""
    desired, metrics = DesiredSets(), EdgeMetrics(registry)
    return Sessions(
        desired=desired,
        inbox=Inbox(
            binding_of=desired.task_of, fold_and_write=Startup().fold_and_write, metrics=metrics
        ),
        epoch=lambda: 1,
        contact_changed=lambda _node: None,
        duplicate_node=lambda _node: None,
        metrics=metrics,
    )


@pytest.fixture
def replica(cluster: Cluster, scripted_client: KubeClient) -> Replica:
    registry = CollectorRegistry()
    sessions = sessions_of(registry)
    return Replica(
        Settings(system_namespace="default", lease_retry_s=0.1),
        scripted_client,
        sessions=lambda: sessions,
        led=lambda _leads: None,
        contact_changed=lambda _node: None,
        clashed=lambda _node: None,
        metrics=EngineMetrics(registry),
    )


@asynccontextmanager
async def running(replica: Replica) -> AsyncIterator[None]:
    """It knows the others and stands for election, but is not known to them."""
    observing = asyncio.create_task(replica.observe(), name="observe")
    standing = asyncio.create_task(replica.stand(), name="stand")
    try:
        yield
    finally:
        await end(standing)
        await end(observing)


UNREADABLE: dict[str, tuple[str, str]] = {
    "the leaders' Lease": (LEASE_PATH, "Lease: get leases"),
    "the replicas' Leases": (LEASES_PATH, "leases.coordination.k8s.io of the other replicas: "),
    "the replicas' ConfigMaps": (CONFIG_MAPS_PATH, "configmaps of the other replicas: "),
}


@pytest.mark.parametrize(("path", "named"), UNREADABLE.values(), ids=UNREADABLE)
async def test_what_it_cannot_read_of_the_others_is_waited_for_by_name(
    cluster: Cluster, replica: Replica, path: str, named: str
) -> None:
    cluster.unreadable = path
    async with running(replica):
        await until(lambda: "not for you" in " ".join(replica.must_wait_for()))
        await until(lambda: len(replica.must_wait_for()) == 1)
        [problem] = replica.must_wait_for()
        assert problem.startswith(named)
        cluster.unreadable = ""
        await until(lambda: not replica.must_wait_for())


async def test_only_while_it_leads_it_deletes_what_the_dead_left(
    cluster: Cluster, replica: Replica
) -> None:
    roster = replica._roster
    now = roster._clock()
    roster._clock = lambda: now
    async with running(replica):
        await until(lambda: not roster.problem)
        now += 16
        roster.judge()
        now += 60
        await roster.bury()
        assert cluster.deleted == []
        replica.fence.open_until(math.inf)
        await roster.bury()
    assert cluster.deleted == [f"{LEASES_PATH}/{object_name('dead')}"]
