"""Replicas that tell each other by a real API whom they serve, on a clock of their own."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from edgeai.api.resources import CONFIG_MAPS, Object, ObjectRef
from edgeai.ids import NodeName
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import NotFound
from globalmanager.ha import claims
from globalmanager.ha.claims import Claim
from globalmanager.ha.contacts import Contacts, ContactSubscriber, ServingReplica
from globalmanager.ha.elector import LEASE_NAME, LEASES, REPLICA_LABEL, Identity
from globalmanager.ha.fence import Fence
from globalmanager.ha.presence import Presence, object_name
from globalmanager.ha.roster import Roster
from tests.globalmanager.cluster import LocalApi
from tests.support.clock import Clock
from tests.support.waiting import async_eventually

NODE: Final = NodeName("edge0")
DURATION_S: Final = 3.0
NAMESPACE: Final = "default"
EARLIER: Final = "2026-03-04T05:06:07.000000Z"
LATER: Final = "2026-03-04T05:06:09.000000Z"


class RosterReplica(ContactSubscriber):
    """Presence and roster, as Membership joins them, and the part of the sessions."""

    def __init__(self, client: KubeClient, name: str, clock: Clock) -> None:
        self.name = name
        self.url: str | None = None
        self.changes: list[NodeName] = []
        self.superseded: list[tuple[NodeName, int]] = []
        self.clashes: list[NodeName] = []
        self.leases: list[Object] = []
        self.fence = Fence()
        self.contacts = Contacts()
        self.contacts.subscribe(self)
        self.presence = Presence(
            client,
            namespace=NAMESPACE,
            identity=Identity(name, name),
            duration_s=DURATION_S,
            contacts=self.contacts,
            edge_side=self,
            publish_interval_s=0.1,
        )
        self.roster = Roster(
            client,
            leading_client=client.guarded(self.fence),
            namespace=NAMESPACE,
            own_name=name,
            duration_s=DURATION_S,
            contacts=self.contacts,
            elector=self,
            presence=self.presence,
            clock=clock,
        )

    def contact_changed(self, node: NodeName) -> None:
        self.changes.append(node)

    def newer_claim(self, node: NodeName, claim: Claim) -> None:
        self.superseded.append((node, claim.order))

    def clash(self, node: NodeName) -> None:
        self.clashes.append(node)

    def edge_url(self) -> str | None:
        return self.url

    def look_soon(self, spec: Object) -> None:
        self.leases.append(spec)

    def serve(self, node: NodeName = NODE) -> None:
        """A session opens, as Sessions would have it."""
        self.contacts.claim(node, ledger="a")

    def leave(self, node: NodeName = NODE) -> None:
        self.contacts.release(node)

    def is_connected(self, node: NodeName = NODE) -> bool:
        contact = self.contacts.by_node().get(node)
        return contact is not None and contact.connected


class ReplicaGroup:
    def __init__(self, kube: KubeClient) -> None:
        self.kube = kube
        self.clock = Clock()
        self.tasks: dict[str, asyncio.Task[Any]] = {}

    async def join(self, name: str, *, is_present: bool = True) -> RosterReplica:
        replica = RosterReplica(self.kube, name, self.clock)
        self.tasks[f"{name} roster"] = asyncio.create_task(replica.roster.run(), name="roster")
        if is_present:
            self.tasks[name] = asyncio.create_task(replica.presence.run(), name="presence")
        await async_eventually("the others", lambda: not replica.roster.problem)
        return replica

    async def end(self, name: str) -> None:
        task = self.tasks.pop(name)
        task.cancel()
        await asyncio.wait([task])

    async def find(self, type_: Any, name: str) -> Object | None:
        try:
            return await self.kube.get(ObjectRef(type_, NAMESPACE, object_name(name)))
        except NotFound:
            return None

    async def play_dead(self, name: str, node: NodeName = NODE) -> None:
        """What a replica leaves behind that was killed."""
        metadata = {"name": object_name(name), "namespace": NAMESPACE}
        labelled = {**metadata, "labels": {REPLICA_LABEL: name}}
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": 3,
            "renewTime": EARLIER,
        }
        lease = await self.kube.create(LEASES, {"metadata": labelled, "spec": spec})
        owner = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "name": object_name(name),
            "uid": lease["metadata"]["uid"],
        }
        text = claims.encode({node: Claim(order=1, since=0, ledger="a")})
        owned = {**labelled, "ownerReferences": [owner]}
        await self.kube.create(CONFIG_MAPS, {"metadata": owned, "data": {"claims": text}})


@pytest.fixture
async def world(bare_cluster: LocalApi, kube: KubeClient) -> AsyncIterator[ReplicaGroup]:
    world = ReplicaGroup(kube)
    yield world
    for name in tuple(world.tasks):
        await world.end(name)


@asynccontextmanager
async def both(world: ReplicaGroup) -> AsyncIterator[tuple[RosterReplica, RosterReplica]]:
    yield await world.join("one"), await world.join("two")


# ---- contacts ----------------------------------------------------------------------------------


async def test_a_session_is_a_contact_everywhere_and_so_is_its_end(world: ReplicaGroup) -> None:
    async with both(world) as (one, two):
        one.serve()
        assert one.is_connected(), "the own ones are known at once"
        await async_eventually("a contact at two", two.is_connected)
        assert two.changes == [NODE]
        one.leave()
        await async_eventually("no contact at two", lambda: not two.is_connected())
        assert two.changes == [NODE, NODE]


async def test_an_edge_that_changes_the_replica_stays_in_contact(world: ReplicaGroup) -> None:
    async with both(world) as (one, two):
        one.serve()
        await async_eventually("a contact at two", two.is_connected)
        two.serve()
        await async_eventually("a newer claim at one", lambda: one.superseded == [(NODE, 2)])
        one.leave()
        await async_eventually("one's end at two", lambda: two.contacts.elsewhere(NODE) is None)
        assert two.is_connected()
        assert (one.changes, two.changes) == ([NODE], [NODE])


async def test_a_replica_that_ends_takes_its_contacts_along_and_leaves_nothing(
    world: ReplicaGroup,
) -> None:
    async with both(world) as (one, two):
        one.serve()
        await async_eventually("a contact at two", two.is_connected)
        await world.end("one")
        await async_eventually("no contact at two", lambda: not two.is_connected())
        assert await world.find(LEASES, "one") is None
        assert await world.find(CONFIG_MAPS, "one") is None


async def test_a_replica_is_a_place_for_edges_while_it_serves_them_and_lives(
    world: ReplicaGroup,
) -> None:
    one, other = await world.join("one"), await world.join("other")
    one.url = "wss://one:9000"
    one.serve()
    expected = (ServingReplica("one", "wss://one:9000", 1),)
    await async_eventually("a place", lambda: other.roster.serving() == expected)
    assert one.roster.serving() == (), "the other serves no edges"
    other.url = ""
    await async_eventually(
        "a place without a URL", lambda: one.roster.serving() == (ServingReplica("other", "", 0),)
    )
    one.url = None
    await async_eventually("no place", lambda: other.roster.serving() == ())
    one.url = "wss://one:9000"
    await async_eventually("a place again", lambda: other.roster.serving() == expected)
    world.clock.now_s += DURATION_S + 1
    other.roster.mark_dead()
    assert other.roster.serving() == (), "a replica that is silent"


async def test_a_silent_replica_is_gone_since_it_was_last_heard(world: ReplicaGroup) -> None:
    await world.play_dead("dead")
    one = await world.join("one")
    await async_eventually("a contact at one", one.is_connected)
    world.clock.now_s += DURATION_S
    one.roster.mark_dead()
    assert one.is_connected()
    world.clock.now_s += 0.5
    one.roster.mark_dead()
    assert not one.is_connected()
    age = datetime.now(UTC) - one.contacts.by_node()[NODE].since
    assert timedelta(seconds=3.4) < age < timedelta(seconds=6)


async def test_a_replica_that_is_heard_again_has_its_contacts_again(world: ReplicaGroup) -> None:
    await world.play_dead("dead")
    one = await world.join("one")
    await async_eventually("a contact at one", one.is_connected)
    world.clock.now_s += DURATION_S + 1
    one.roster.mark_dead()
    lease = await world.find(LEASES, "dead")
    assert lease is not None
    heartbeat = {**lease["spec"], "renewTime": LATER}
    await world.kube.replace(LEASES, {**lease, "spec": heartbeat})
    await async_eventually("a contact at one", one.is_connected)


async def test_sessions_told_by_nobody_who_lives_are_forgotten(world: ReplicaGroup) -> None:
    """A ConfigMap whose Lease is gone already, and which is not deleted yet."""
    text = claims.encode({NODE: Claim(order=1, since=0, ledger="a")})
    metadata = {
        "name": object_name("dead"),
        "namespace": NAMESPACE,
        "labels": {REPLICA_LABEL: "dead"},
    }
    await world.kube.create(CONFIG_MAPS, {"metadata": metadata, "data": {"claims": text}})
    one = await world.join("one")
    await async_eventually("a contact at one", one.is_connected)
    world.clock.now_s += DURATION_S + 0.5
    one.roster.mark_dead()
    assert not one.is_connected()
    assert one.roster._others == {}


async def test_nobody_is_judged_while_nothing_is_heard(
    bare_cluster: LocalApi, world: ReplicaGroup
) -> None:
    """An API server that was away for long makes nobody's edges lost."""
    await world.play_dead("other")
    one = await world.join("one")
    await async_eventually("a contact at one", one.is_connected)
    await bare_cluster.stop()
    await async_eventually("silence", one.roster.is_deaf)
    world.clock.now_s += 3600
    one.roster.mark_dead()
    await bare_cluster.start()
    await async_eventually("news", lambda: not one.roster.is_deaf())
    one.roster.mark_dead()
    assert one.is_connected(), "it has the time of a lease to be heard"
    world.clock.now_s += DURATION_S + 0.5
    one.roster.mark_dead()
    assert not one.is_connected()


async def test_who_did_not_hear_the_api_is_current_a_lease_after_it_hears_again(
    bare_cluster: LocalApi, world: ReplicaGroup
) -> None:
    one = await world.join("one")
    await async_eventually("a Lease", lambda: world.find(LEASES, "one"))
    assert one.roster.is_current()
    await bare_cluster.stop()
    await async_eventually("silence", lambda: not one.roster.is_current())
    await bare_cluster.start()
    await async_eventually("news", lambda: not one.roster.is_deaf())
    one.roster.mark_dead()
    world.clock.now_s += DURATION_S - 0.1
    assert not one.roster.is_current(), "other watches may not have dialled the API again"
    world.clock.now_s += 0.2
    assert one.roster.is_current()


async def test_a_silence_that_no_edge_asks_about_is_remembered(
    bare_cluster: LocalApi, world: ReplicaGroup
) -> None:
    one = await world.join("one")
    await bare_cluster.stop()
    await async_eventually("silence", one.roster.is_deaf)
    one.roster.mark_dead()
    await bare_cluster.start()
    await async_eventually("news", lambda: not one.roster.is_deaf())
    assert not one.roster.is_current()


# ---- what is written ---------------------------------------------------------------------------


async def test_what_does_not_change_is_not_written(world: ReplicaGroup) -> None:
    one = await world.join("one")
    await async_eventually("a Lease", lambda: world.find(LEASES, "one"))
    assert await world.find(CONFIG_MAPS, "one") is None, "nobody is served: nothing to say"
    one.serve()
    before = await async_eventually("claims", lambda: world.find(CONFIG_MAPS, "one"))
    one.presence.publish_again()  # makes it look again; the Lease is renewed when it has
    renewed = (await world.find(LEASES, "one") or {})["spec"]
    await async_eventually("a heartbeat", lambda: is_renewed(world, "one", renewed))
    assert (await world.find(CONFIG_MAPS, "one") or {})["data"] == before["data"]


async def is_renewed(world: ReplicaGroup, name: str, spec: Object) -> bool:
    lease = await world.find(LEASES, name)
    return lease is not None and lease["spec"] != spec


async def test_many_changes_are_few_writes(world: ReplicaGroup) -> None:
    one = await world.join("one")
    one.serve()
    first = await async_eventually("claims", lambda: world.find(CONFIG_MAPS, "one"))
    for number in range(200):
        one.serve(NodeName(f"edge{number}"))
    two = await world.join("two", is_present=False)
    await async_eventually("all contacts", lambda: len(two.contacts.by_node()) == 200)
    last = await world.find(CONFIG_MAPS, "one")
    assert last is not None
    assert last["metadata"]["uid"] == first["metadata"]["uid"]


@pytest.mark.parametrize("type_", [LEASES, CONFIG_MAPS], ids=["Lease", "ConfigMap"])
async def test_what_somebody_deleted_is_published_again(world: ReplicaGroup, type_: Any) -> None:
    async with both(world) as (one, two):
        one.serve()
        await async_eventually("a contact at two", two.is_connected)
        await world.kube.delete(ObjectRef(type_, NAMESPACE, object_name("one")))
        await async_eventually(
            "the contact, lost and found again",
            lambda: len(two.changes) >= 3 and two.is_connected(),
        )
        lease, config_map = [await world.find(each, "one") for each in (LEASES, CONFIG_MAPS)]
        assert lease is not None
        assert config_map is not None
        assert config_map["metadata"]["ownerReferences"][0]["uid"] == lease["metadata"]["uid"]


async def test_the_leader_alone_removes_what_the_dead_left(world: ReplicaGroup) -> None:
    await world.play_dead("dead")
    one = await world.join("one")
    await async_eventually("a contact at one", one.is_connected)
    world.clock.now_s += DURATION_S + 1
    one.roster.mark_dead()
    world.clock.now_s += 5 * DURATION_S
    await one.roster.delete_dead()
    assert await world.find(LEASES, "dead") is not None
    one.fence.open_until(math.inf)
    await one.roster.delete_dead()
    assert await world.find(LEASES, "dead") is None
    await async_eventually("its claims deleted", lambda: is_gone(world, "dead"))


async def test_a_lease_that_was_made_anew_after_the_look_is_not_the_deads(
    world: ReplicaGroup,
) -> None:
    await world.play_dead("dead")
    one = await world.join("one")
    await async_eventually("a contact at one", one.is_connected)
    world.clock.now_s += DURATION_S + 1
    one.roster.mark_dead()
    await world.end("one roster")  # it hears of nothing from now on
    lease = await world.find(LEASES, "dead")
    assert lease is not None
    await world.kube.delete(ObjectRef(LEASES, NAMESPACE, object_name("dead")))
    labelled = {key: lease["metadata"][key] for key in ("name", "namespace", "labels")}
    anew = await world.kube.create(LEASES, {"metadata": labelled, "spec": lease["spec"]})
    world.clock.now_s += 5 * DURATION_S
    one.fence.open_until(math.inf)
    await one.roster.delete_dead()
    assert await world.find(LEASES, "dead") == anew


async def is_gone(world: ReplicaGroup, name: str) -> bool:
    return await world.find(CONFIG_MAPS, name) is None


# ---- two of one name, and what else is heard ----------------------------------------------------


async def test_a_clash_is_told_once_at_each_replica(world: ReplicaGroup) -> None:
    async with both(world) as (one, two):
        one.serve()
        one.contacts.clash(NODE)
        await async_eventually("the clash at two", lambda: two.clashes == [NODE])
        one.serve(NodeName("other"))
        await async_eventually("a contact", lambda: two.is_connected(NodeName("other")))
        one.contacts.clash(NODE)
        await async_eventually("the next clash", lambda: two.clashes == [NODE, NODE])
        assert one.clashes == [NODE, NODE]


async def test_claims_that_cannot_be_read_are_none(world: ReplicaGroup) -> None:
    async with both(world) as (one, two):
        one.serve()
        await async_eventually("a contact at two", two.is_connected)
        ref = ObjectRef(CONFIG_MAPS, NAMESPACE, object_name("one"))
        await world.kube.merge_patch(ref, {"data": {"claims": "%%%"}})
        await async_eventually("no contact at two", lambda: not two.is_connected())


async def test_the_leaders_lease_is_told_on(world: ReplicaGroup) -> None:
    one = await world.join("one")
    metadata = {"name": LEASE_NAME, "namespace": NAMESPACE, "labels": {REPLICA_LABEL: "leader"}}
    lease = {"metadata": metadata, "spec": {"holderIdentity": "x", "leaseTransitions": 4}}
    await world.kube.create(LEASES, lease)
    await async_eventually(
        "the leader's Lease",
        lambda: one.leases and one.leases[-1]["leaseTransitions"] == 4,
    )
