"""Plans are carried out in order, up to the first failure, and repeated without twins."""

import asyncio
import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from common.clock import SYSTEM_CLOCK
from edgeai.api.deletions import OVERDUE_S, TERMINATING
from edgeai.api.resources import Object, ObjectRef, ResourceType
from edgeai.api.status import WAITING
from edgeai.ids import Uid
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Conflict, Invalid, NotFound
from edgeai.times import utc_now
from globalmanager.cache.live import Live
from globalmanager.cache.store import Store
from globalmanager.contract import (
    Contact,
    Create,
    Delete,
    Event,
    Observed,
    Plan,
    Replace,
    Severity,
    WorkerSettings,
)
from globalmanager.engine.apply import Applier, NameConflict, StillTerminating, refusal_of
from globalmanager.engine.drift import Drift
from globalmanager.engine.events import EVENTS, Recorder
from globalmanager.engine.job_metrics import JobMetrics
from globalmanager.engine.owners import Owners
from globalmanager.engine.pod_admission import PodAdmission
from globalmanager.engine.pod_security import Level
from globalmanager.engine.status import StatusWriter
from tests.globalmanager.cluster import CRDS, LocalApi, User, run_manager
from tests.globalmanager.engine.stores import Stores
from tests.globalmanager.gadgets import CONFIGMAPS, GADGET, crd_of, gadget, read, wanted_config
from tests.globalmanager.objects import GADGETS
from tests.support.clock import Clock
from tests.support.waiting import async_eventually

CONFIG = ObjectRef(CONFIGMAPS, "default", "a-config")
NO_CONTACTS: dict[Any, Contact] = {}


class Bench:
    """An applier over stores that see its own writes only, and the gadget `a`."""

    def __init__(self, client: KubeClient, made: Object) -> None:
        self.client = client
        self.made = made
        self.stores: dict[ResourceType, Store] = {}
        self.recorder = Recorder(client)
        live = Live(client, self.store)
        self.owners = Owners(live, SYSTEM_CLOCK)
        self.owners.changed(None, made)
        status = StatusWriter(client, self.store)
        self.clock = Clock()
        self.children: dict[ObjectRef, Object] = {}
        self.overridden: dict[ObjectRef, tuple[str, ...]] = {}
        drift = Drift(self.clock)
        anarchy = Stores()
        anarchy.has_namespaces = False
        self.applier = Applier(
            live,
            self.owners,
            drift,
            status,
            self.recorder,
            kinds={GADGETS: GADGET},
            admission=PodAdmission(anarchy, Level.PRIVILEGED),
            metrics=JobMetrics(CollectorRegistry()),
        )

    def store(self, type_: ResourceType) -> Store:
        return self.stores.setdefault(type_, Store(type_))

    def observed(self) -> Observed:
        return Observed(
            type=GADGETS,
            object=self.made,
            spec=read(self.made),
            children=self.children,
            pods=(),
            references={},
            contacts=NO_CONTACTS,
            settings=WorkerSettings(root_key=bytes(32)),
            overridden=self.overridden,
        )

    def config(self, **changes: Any) -> Object:
        return {**wanted_config(self.observed()), **changes}

    async def apply(self, *actions: Create | Replace | Delete, **plan: Any) -> float | None:
        return await self.applier.apply(
            self.observed(), Plan(stages=tuple((action,) for action in actions), **plan)
        )

    async def recorded(self) -> list[str]:
        """Reasons of the Events so far."""
        sending = asyncio.create_task(self.recorder.run(), name="events")
        self.recorder.record(self.made, Event(Severity.NORMAL, "Last", "of all"))

        async def all_sent() -> list[str] | None:
            listing = await self.client.list(EVENTS, namespace="default")
            reasons = [event["reason"] for event in listing.items]
            return reasons if "Last" in reasons else None

        reasons = await async_eventually("the event Last", all_sent)
        sending.cancel()
        return [reason for reason in reasons if reason != "Last"]


def owner_reference(type_: ResourceType, owner: Object) -> Object:
    return {
        "apiVersion": type_.api_version,
        "kind": type_.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


@pytest.fixture
async def bench(cluster: LocalApi, kube: KubeClient, user: User) -> Bench:
    made = await user.create(GADGETS, gadget("a"))
    return Bench(kube, made)


async def test_what_is_created_is_seen_in_the_store(bench: Bench) -> None:
    await bench.apply(Create(CONFIGMAPS, bench.config()))
    assert bench.store(CONFIGMAPS).get(CONFIG) is not None


async def test_creating_what_was_created_before_a_crash_is_success(
    bench: Bench, user: User
) -> None:
    await user.create(CONFIGMAPS, bench.config())
    await bench.apply(Create(CONFIGMAPS, bench.config()), status={"phase": "Ready"})
    assert bench.store(CONFIGMAPS).get(CONFIG) is not None
    assert bench.store(GADGETS).list()[0]["status"] == {"phase": "Ready"}


OTHER_GADGETS = ResourceType("other.io", "v1", "gadgets", "Gadget")
FOREIGN: dict[str, tuple[ObjectRef | None, str]] = {
    "nobody's": (None, "no controller"),
    "another's": (ObjectRef(GADGETS, "default", "b"), "Gadget.test.edgeai.io b"),
    "of the same name in another group": (
        ObjectRef(OTHER_GADGETS, "default", "a"),
        "Gadget.other.io a",
    ),
}


@pytest.mark.parametrize(("owner", "named"), FOREIGN.values(), ids=FOREIGN)
async def test_a_name_that_is_taken_is_reported_with_who_has_it(
    bench: Bench, user: User, owner: ObjectRef | None, named: str
) -> None:
    await user.create(CRDS, crd_of(OTHER_GADGETS))
    taken: Object = {"metadata": {"name": "a-config", "namespace": "default"}}
    if owner is not None:
        made = await user.create(owner.type, gadget(owner.name))
        taken["metadata"]["ownerReferences"] = [owner_reference(owner.type, made)]
    await user.create(CONFIGMAPS, taken)
    with pytest.raises(NameConflict, match=re.escape(f"belongs to {named};")):
        await bench.apply(Create(CONFIGMAPS, bench.config()))


async def test_the_child_of_a_predecessor_is_waited_for_without_alarm(
    bench: Bench, user: User
) -> None:
    made = await user.create(CONFIGMAPS, bench.config())
    bench.made = {**bench.made, "metadata": {**bench.made["metadata"], "uid": "successor"}}
    bench.owners.changed(None, bench.made)
    with pytest.raises(StillTerminating, match="a-config is still being deleted"):
        await bench.apply(Create(CONFIGMAPS, bench.config()))
    assert await bench.recorded() == []
    assert made["metadata"]["name"] == "a-config"


async def test_a_child_that_is_being_deleted_is_waited_for(bench: Bench, user: User) -> None:
    config = bench.config()
    config["metadata"]["finalizers"] = ["t/x"]
    await user.create(CONFIGMAPS, config)
    await user.delete(CONFIGMAPS, "a-config")
    with pytest.raises(StillTerminating) as refused:
        await bench.apply(Create(CONFIGMAPS, bench.config()))
    told = refusal_of(refused.value)
    assert told is not None
    assert told.reason == WAITING
    now = utc_now()
    assert refused.value.refusal(now) == told
    late = refused.value.refusal(now + timedelta(seconds=OVERDUE_S))
    assert (late.reason, late.message) == (
        TERMINATING,
        f"{told.message}: it has the finalizers t/x and stays until their controllers remove them",
    )


async def test_what_was_done_is_an_event_and_nothing_else_is(bench: Bench, user: User) -> None:
    await bench.apply(Create(CONFIGMAPS, bench.config()))
    current = await user.client.get(CONFIG)
    await bench.apply(Replace(CONFIGMAPS, {**current, "data": {"data": "mine"}}))
    uid = Uid(current["metadata"]["uid"])
    await bench.apply(Delete(CONFIG, uid), Delete(CONFIG, uid))
    await user.create(CONFIGMAPS, {"metadata": {"name": "a-config", "namespace": "default"}})
    with pytest.raises(NameConflict):
        await bench.apply(Create(CONFIGMAPS, bench.config()))
    assert sorted(await bench.recorded()) == ["Created", "Deleted", "Replaced"]


async def test_an_event_about_an_action_has_the_reason_that_the_kind_gives(
    cluster: LocalApi, user: User
) -> None:
    kind = msgspec.structs.replace(GADGET, event_reason=lambda what, type_: f"{what}{type_.kind}")
    await user.create(GADGETS, gadget("a"))
    async with run_manager(cluster.kubeconfig, kinds=[kind]) as manager:
        await manager.wait_for_phase("a")

        async def is_recorded() -> bool:
            found = await user.client.list(EVENTS)
            return "CreatedConfigMap" in [one["reason"] for one in found.items]

        await async_eventually("the event", is_recorded)


async def test_replacing_what_changed_meanwhile_is_a_conflict(bench: Bench, user: User) -> None:
    stale = await user.create(CONFIGMAPS, bench.config())
    await user.client.merge_patch(CONFIG, {"data": {"data": "newer"}})
    with pytest.raises(Conflict):
        await bench.apply(Replace(CONFIGMAPS, {**stale, "data": {"data": "mine"}}))


async def test_what_is_replaced_is_seen_in_the_store(bench: Bench, user: User) -> None:
    current = await user.create(CONFIGMAPS, bench.config())
    await bench.apply(Replace(CONFIGMAPS, {**current, "data": {"data": "mine"}}))
    seen = bench.store(CONFIGMAPS).get(CONFIG)
    assert seen is not None
    assert seen["data"] == {"data": "mine"}


async def test_who_changes_a_child_again_and_again_is_told_of_and_left_alone(
    bench: Bench, user: User
) -> None:
    await bench.apply(Create(CONFIGMAPS, bench.config()))
    for is_left_alone in (False, False, True):
        current = await user.get(CONFIGMAPS, "a-config")
        assert current is not None
        foreign = await bench.client.replace(CONFIGMAPS, {**current, "data": {"data": "theirs"}})
        bench.children = {CONFIG: foreign}
        desired = {**foreign, "data": bench.config()["data"]}
        wait_s = await bench.apply(Replace(CONFIGMAPS, desired, True))
        while wait_s is not None and wait_s > 1:  # the pause before the second time
            bench.clock.now_s += wait_s
            wait_s = await bench.apply(Replace(CONFIGMAPS, desired, True))
        # When it is new, the job is planned again at once, and then no more.
        assert (wait_s is not None) == is_left_alone
        overridden = bench.applier.overridden(bench.observed())
        assert overridden == ({CONFIG: ("data.data",)} if is_left_alone else {})
        bench.overridden = overridden
        if is_left_alone:
            assert await bench.apply(Replace(CONFIGMAPS, desired, True)) is None
    found = await user.get(CONFIGMAPS, "a-config")
    assert found is not None
    assert found["data"] == {"data": "theirs"}
    assert sorted(set(await bench.recorded())) == ["Created", "Drift", "Restored"]


async def test_a_child_in_order_again_is_overridden_no_more(bench: Bench, user: User) -> None:
    await bench.apply(Create(CONFIGMAPS, bench.config()))
    made = await user.get(CONFIGMAPS, "a-config")
    assert made is not None
    bench.applier._drift.note_write(bench.config(), {**made, "data": {"data": "theirs"}})
    foreign = await bench.client.replace(CONFIGMAPS, {**made, "data": {"data": "theirs"}})
    bench.children = {CONFIG: foreign}
    await bench.apply(Replace(CONFIGMAPS, {**foreign, "data": bench.config()["data"]}, True))
    assert bench.applier.overridden(bench.observed()) == {CONFIG: ("data.data",)}
    await bench.apply()
    assert bench.applier.overridden(bench.observed()) == {}


async def test_deleting_what_is_gone_is_success(bench: Bench) -> None:
    await bench.apply(Delete(CONFIG, bench.observed().uid))


async def test_only_the_object_of_that_uid_is_deleted(bench: Bench, user: User) -> None:
    await user.create(CONFIGMAPS, bench.config())
    with pytest.raises(Conflict):
        await bench.apply(Delete(CONFIG, bench.observed().uid))
    assert await user.get(CONFIGMAPS, "a-config") is not None


async def test_the_first_failure_ends_the_plan_before_its_status(bench: Bench, user: User) -> None:
    bad = {"metadata": {"name": "Bad Name", "namespace": "default"}}
    with pytest.raises(Invalid):
        await bench.apply(
            Create(CONFIGMAPS, bad),
            Create(CONFIGMAPS, bench.config()),
            status={"phase": "Ready"},
            events=(Event(Severity.NORMAL, "Ready", "it is"),),
        )
    assert await user.get(CONFIGMAPS, "a-config") is None
    assert "status" not in (await user.get(GADGETS, "a") or {})
    assert await bench.recorded() == []


async def test_a_terminating_owner_deletes_but_does_not_create(bench: Bench, user: User) -> None:
    made = await user.create(CONFIGMAPS, bench.config())
    other = {"metadata": {"name": "other", "namespace": "default"}}
    bench.made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    await bench.apply(Create(CONFIGMAPS, other), Delete(CONFIG, made["metadata"]["uid"]))
    assert await user.get(CONFIGMAPS, "other") is None
    assert await user.get(CONFIGMAPS, "a-config") is None


async def test_what_ends_gracefully_is_seen_so_in_the_store(bench: Bench, user: User) -> None:
    config = bench.config()
    config["metadata"]["finalizers"] = ["t/x"]
    made = await user.create(CONFIGMAPS, config)
    await bench.apply(Delete(CONFIG, made["metadata"]["uid"]))
    seen = bench.store(CONFIGMAPS).get(CONFIG)
    assert seen is not None
    assert "deletionTimestamp" in seen["metadata"]


async def test_a_status_planned_from_an_older_one_is_a_conflict_and_not_sent(
    cluster: LocalApi, user: User
) -> None:
    """A report was folded in since the look: the plan's totals would take it back."""
    made = await user.create(GADGETS, gadget("a"))
    requests: list[str] = []
    async with await KubeClient.from_kubeconfig(
        cluster.kubeconfig, on_request=lambda verb, _code, _s: requests.append(verb)
    ) as client:
        bench = Bench(client, made)
        ref = ObjectRef(GADGETS, "default", "a")
        newer = {"status": {"workers": {"w": 9}, "total": 9}}
        bench.store(GADGETS).upsert(await user.client.merge_patch(ref, newer, subresource="status"))
        with pytest.raises(Conflict, match="its status changed meanwhile"):
            await bench.apply(status={"phase": "Ready", "total": 0})
    assert requests == []
    assert (await user.get(GADGETS, "a") or {})["status"] == newer["status"]


async def test_a_type_that_is_not_served_fails_by_name(bench: Bench) -> None:
    gizmos = ResourceType("test.edgeai.io", "v1", "gizmos", "Gizmo")
    object_ = {"metadata": {"name": "x", "namespace": "default"}}
    with pytest.raises(NotFound, match=r"create gizmos\.test\.edgeai\.io default/x"):
        await bench.apply(Create(gizmos, object_))
