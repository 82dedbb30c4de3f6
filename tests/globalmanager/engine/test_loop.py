"""The engine against a real API: what is declared becomes true, and nothing more is written."""

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from edgeai.api.resources import NODES, Object, ObjectRef, ResourceType
from edgeai.backoff import Backoff
from edgeai.ids import NodeName, Uid
from edgeai.kube.remedies import UPGRADE
from globalmanager.engine.events import EVENTS
from globalmanager.engine.settings import EngineSettings
from tests.globalmanager.cluster import FAST, LocalApi, Manager, User, key_of, run_manager
from tests.globalmanager.engine.marker import lose_child, make_marker, pass_marker
from tests.globalmanager.gadgets import CONFIGMAPS, GADGET, PARTS, counting, gadget
from tests.globalmanager.objects import GADGETS, make
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.kubeconfig import write_kubeconfig
from tests.support.waiting import async_eventually

ETCD_BYTES = 1536 * 1024  # largest object
NAMESPACES = ResourceType("", "v1", "namespaces", "Namespace", namespaced=False)


async def data_of(user: User, name: str) -> object:
    config = await user.get(CONFIGMAPS, f"{name}-config")
    return config and config["data"]["data"]


# ---- convergence --------------------------------------------------------------------------------


async def test_a_new_resource_gets_its_child_its_status_and_its_assignment(
    manager: Manager, user: User
) -> None:
    await user.create(GADGETS, gadget("a", node="n1", data="x"))
    await manager.wait_for_phase("a")
    assert await data_of(user, "a") == "x"
    assert manager.edge.nodes_of("a") == ["n1"]
    stored = await user.get(GADGETS, "a")
    assert stored is not None
    assert stored["status"] == {"observedGeneration": 1, "pods": 0, "phase": "Ready"}


async def test_a_settled_system_writes_nothing(cluster: LocalApi, user: User) -> None:
    kind, plans = counting(GADGET)
    async with run_manager(cluster.kubeconfig, kinds=(kind,)) as manager:

        async def look_again() -> None:
            before = plans.copy()
            manager.engine.contact_changed(NodeName("n1"))
            await async_eventually(
                "a plan of each job", lambda: all(plans[name] > before[name] for name in "abc")
            )

        for name in "abc":
            await user.create(GADGETS, gadget(name, node="n1"))
            await manager.wait_for_phase(name)
        await async_eventually("two Events of each", partial(has_events, user, 2 * len("abc")))
        await look_again()
        before = len(manager.writes)
        for _ in range(2):  # once the second plan is asked for, the first is carried out
            await look_again()
        assert manager.writes[before:] == []


async def test_one_plan_at_most_is_computed_in_a_turn_of_the_event_loop(
    cluster: LocalApi, user: User
) -> None:
    """Assignments and sessions share the loop, so they wait for one plan and not for sixteen."""
    kind, plans = counting(GADGET)
    settings = EngineSettings(informer=FAST, reconcilers=16)
    names = [f"g{number}" for number in range(settings.reconcilers)]
    async with run_manager(cluster.kubeconfig, kinds=(kind,), settings=settings) as manager:
        for name in names:
            await user.create(GADGETS, gadget(name, node="n1"))
        for name in names:
            await manager.wait_for_phase(name)
        before = plans.copy()
        manager.engine.leadership_changed(leads=True)
        most_in_a_turn = 0
        while any(plans[name] == before[name] for name in names):
            total = plans.total()
            await asyncio.sleep(0)
            most_in_a_turn = max(most_in_a_turn, plans.total() - total)
        assert most_in_a_turn == 1


async def test_changes_of_a_job_shortly_after_one_another_are_one_plan(
    cluster: LocalApi, user: User
) -> None:
    kind, plans = counting(GADGET)
    async with run_manager(cluster.kubeconfig, kinds=(kind,), rest_s=3600) as manager:
        await async_eventually("readiness", lambda: manager.engine.health().ready)
        await user.create(GADGETS, gadget("a", node="n1", data="0"))
        await async_eventually("the first plan", lambda: plans["a"] == 1)
        for change in range(1, 6):
            await user.change_spec("a", data=str(change))
            # Another job's first plan comes later than this change.
            await user.create(GADGETS, gadget(f"later-{change}", node="n1"))
            later = f"later-{change}"
            await async_eventually("the plan of a later job", partial(_is_planned, plans, later))
        assert plans["a"] == 1


def _is_planned(plans: Counter[str], name: str) -> bool:
    return plans[name] > 0


async def has_events(user: User, count: int) -> bool:
    found = (await user.client.list(EVENTS, namespace="default")).items
    assert len(found) == count, f"{len(found)} Events"
    return True


async def test_a_changed_spec_reaches_child_and_node(manager: Manager, user: User) -> None:
    await user.create(GADGETS, gadget("a", node="n1", data="x"))
    await manager.wait_for_phase("a")
    await user.change_spec("a", data="y", node="n2")
    await async_eventually(
        "manager.status('a').get('observedGeneration') == 2",
        lambda: manager.status("a").get("observedGeneration") == 2,
    )
    assert await data_of(user, "a") == "y"
    assert manager.edge.nodes_of("a") == ["n2"]
    assert manager.edge.desired[key_of("a")][NodeName("n2")].version == 2


async def test_what_the_api_refuses_is_told_once_and_tried_again(
    manager: Manager, user: User
) -> None:
    foreign = {"metadata": {"name": "a-config", "namespace": "default"}, "data": {"data": "mine"}}
    await user.create(CONFIGMAPS, foreign)
    await user.create(GADGETS, gadget("a"))
    await manager.wait_for_phase("a", "NameConflict")
    refused = manager.requests.count(("create", "409"))
    await async_eventually(
        "manager.requests.count(('create', '409')) > refused + 2",
        lambda: manager.requests.count(("create", "409")) > refused + 2,
    )
    assert [verb for verb, code in manager.writes if code == "200"] == ["patch"]
    assert await data_of(user, "a") == "mine"
    await user.delete(CONFIGMAPS, "a-config")
    await manager.wait_for_phase("a")


async def test_a_deleted_child_comes_back(manager: Manager, user: User) -> None:
    await user.create(GADGETS, gadget("a"))
    await manager.wait_for_phase("a")
    await lose_child(user, "a")


async def test_a_child_that_was_tampered_with_is_mended(manager: Manager, user: User) -> None:
    await user.create(GADGETS, gadget("a", data="x"))
    await manager.wait_for_phase("a")
    ref = ObjectRef(CONFIGMAPS, "default", "a-config")
    await user.client.merge_patch(ref, {"data": {"data": "tampered"}})
    await async_eventually(
        "('update', '200') in manager.writes", lambda: ("update", "200") in manager.writes
    )
    assert await data_of(user, "a") == "x"


async def test_a_deleted_resource_is_forgotten_and_its_child_goes(
    manager: Manager, user: User
) -> None:
    await user.create(GADGETS, gadget("a", node="n1"))
    await manager.wait_for_phase("a")
    await user.delete(GADGETS, "a")
    await async_eventually(
        "manager.edge.forgotten == [key_of('a')]", lambda: manager.edge.forgotten == [key_of("a")]
    )
    assert manager.edge.nodes_of("a") == []
    await async_eventually("the end of the child", partial(has_no_config, user, "a"))
    await pass_marker(manager, user)
    assert await has_no_config(user, "a")


async def has_no_config(user: User, name: str) -> bool:
    return await user.get(CONFIGMAPS, f"{name}-config") is None


async def test_a_resource_made_anew_under_its_name_gets_a_child_of_its_own(
    manager: Manager, user: User
) -> None:
    await user.create(GADGETS, gadget("a", node="n1", data="old"))
    await manager.wait_for_phase("a")
    await user.delete(GADGETS, "a")
    again = await user.create(GADGETS, gadget("a", node="n1", data="new"))
    uid = again["metadata"]["uid"]
    await async_eventually(
        "manager.engine.jobs.by_uid(uid) and manager.phase('a') == 'Ready'",
        lambda: manager.engine.jobs.by_uid(uid) and manager.phase("a") == "Ready",
    )
    assert await data_of(user, "a") == "new"
    await async_eventually(
        "the assignment of the new one",
        lambda: manager.edge.desired[key_of("a")][NodeName("n1")].uid == uid,
    )


async def test_a_resource_made_anew_goes_on_as_soon_as_its_past_has_ended(
    manager: Manager, user: User
) -> None:
    """Its own next try would be a minute away."""
    await user.create(GADGETS, gadget("a"))
    await manager.wait_for_phase("a")
    config = ObjectRef(CONFIGMAPS, "default", "a-config")
    await user.client.merge_patch(config, {"metadata": {"finalizers": ["test.edgeai.io/held"]}})
    await user.delete(GADGETS, "a")
    again = await user.create(GADGETS, gadget("a"))
    ref = ObjectRef(GADGETS, "default", "a")
    patient = Backoff(base_s=60, max_s=60, floor_s=60)
    manager.engine._queue._backoffs[ref] = patient
    await async_eventually("patient.failures > 0", lambda: patient.failures > 0)
    await user.client.merge_patch(config, {"metadata": {"finalizers": None}})
    await async_eventually(
        "manager.engine.jobs.by_uid(again['metadata']['uid']) is not None",
        lambda: manager.engine.jobs.by_uid(again["metadata"]["uid"]) is not None,
    )
    await manager.wait_for_phase("a")


async def test_a_terminating_resource_creates_nothing(manager: Manager, user: User) -> None:
    await user.create(
        GADGETS,
        {**gadget("a"), "metadata": {"name": "a", "namespace": "default", "finalizers": ["t/x"]}},
    )
    await manager.wait_for_phase("a")
    await user.delete(GADGETS, "a")
    await make_marker(manager, user)
    await user.delete(CONFIGMAPS, "a-config")
    await pass_marker(manager, user)
    assert await has_no_config(user, "a")


# ---- what else makes a resource be looked at ----------------------------------------------------


async def test_a_resource_waits_for_what_it_refers_to_and_proceeds_when_it_appears(
    manager: Manager, user: User
) -> None:
    await user.create(GADGETS, gadget("a", part="p"))
    await manager.wait_for_phase("a", "Waiting")
    await user.create(PARTS, {"metadata": {"name": "p", "namespace": "default"}})
    await manager.wait_for_phase("a")


async def test_contact_with_a_node_concerns_what_is_assigned_there(
    manager: Manager, user: User
) -> None:
    await user.create(GADGETS, gadget("a", node="n1"))
    await manager.wait_for_phase("a")
    manager.edge.connect("n1")
    await async_eventually(
        "manager.status('a').get('connected') is True",
        lambda: manager.status("a").get("connected") is True,
    )


async def test_a_plan_that_asks_for_it_is_made_again_though_nothing_changed(
    manager: Manager, user: User
) -> None:
    await user.create(GADGETS, gadget("a", node="n1", bug="restless"))
    await manager.wait_for_phase("a")
    before = reconciles(manager)
    await async_eventually(
        "reconciles(manager) > before + 3", lambda: reconciles(manager) > before + 3
    )


def reconciles(manager: Manager) -> float:
    labels = {"kind": GADGET.definition.name, "result": "ok"}
    return manager.registry.get_sample_value("edgeai_reconciles_total", labels) or 0.0


# ---- faults -------------------------------------------------------------------------------------


async def test_a_kind_that_fails_for_one_resource_does_not_harm_another(
    manager: Manager, user: User
) -> None:
    await user.create(GADGETS, gadget("bad", node="n1", bug="plan"))
    await user.create(GADGETS, gadget("good", node="n1"))
    await manager.wait_for_phase("good")
    assert manager.phase("bad") == ""
    assert manager.edge.nodes_of("bad") == ["n1"]
    await user.change_spec("bad", bug="")
    await manager.wait_for_phase("bad")


async def test_the_node_learns_its_task_even_if_the_plan_cannot_be_carried_out(
    manager: Manager, user: User
) -> None:
    foreign = {"metadata": {"name": "a-config", "namespace": "default"}}
    await user.create(CONFIGMAPS, foreign)
    await user.create(GADGETS, gadget("a", node="n1"))
    await async_eventually(
        "manager.edge.nodes_of('a') == ['n1']", lambda: manager.edge.nodes_of("a") == ["n1"]
    )
    await async_eventually(
        "('create', '409') in manager.writes", lambda: ("create", "409") in manager.writes
    )
    await manager.wait_for_phase("a", "NameConflict")
    await user.delete(CONFIGMAPS, "a-config")
    await manager.wait_for_phase("a")


async def test_an_outage_of_the_api_is_survived(cluster: LocalApi, user: User) -> None:
    settings = EngineSettings(informer=FAST, stale_after_s=0.1)
    async with run_manager(cluster.kubeconfig, settings=settings) as manager:
        await user.create(GADGETS, gadget("a", node="n1"))
        await manager.wait_for_phase("a")
        await cluster.stop()
        await async_eventually(
            "not manager.engine.health().ready", lambda: not manager.engine.health().ready
        )
        await cluster.start()
        await user.create(GADGETS, gadget("b"))
        await user.delete(GADGETS, "a")
        await manager.wait_for_phase("b")
        await async_eventually(
            "manager.edge.nodes_of('a') == []", lambda: manager.edge.nodes_of("a") == []
        )
        await async_eventually(
            "manager.engine.health().ready", lambda: manager.engine.health().ready
        )


async def test_a_restart_finds_everything_done(
    manager: Manager, user: User, cluster: LocalApi
) -> None:
    await user.create(GADGETS, gadget("a", node="n1"))
    await manager.wait_for_phase("a")
    kind, plans = counting(GADGET)
    async with run_manager(cluster.kubeconfig, kinds=(kind,)) as restarted:
        await restarted.engine.initially_assigned.wait()
        assert restarted.edge.nodes_of("a") == ["n1"]
        await async_eventually("a plan", lambda: plans["a"] >= 1)
        restarted.engine.contact_changed(NodeName("n1"))
        await async_eventually("the end of the first plan", lambda: plans["a"] >= 2)
        assert restarted.writes == []


async def test_success_forgets_the_failures_before_it(manager: Manager, user: User) -> None:
    """Else a resource that failed often once would wait longest after each later hiccup."""
    ref = ObjectRef(GADGETS, "default", "a")
    backoffs = manager.engine._queue._backoffs
    await user.create(GADGETS, gadget("a", bug="plan"))
    await async_eventually("a failure", lambda: ref in backoffs)
    await user.change_spec("a", bug="")
    await manager.wait_for_phase("a")
    await async_eventually("no failure", lambda: ref not in backoffs)


def with_a_late_list(
    scripted: ScriptedApi, known: asyncio.Event, late: str, **objects: Object
) -> None:
    """Have one object of each plural; the list of the plural `late` hangs until `known`."""

    async def listing(request: web.Request) -> web.StreamResponse:
        plural = request.path.split("/")[-1]
        if plural == late:
            await known.wait()
        found = [objects[plural]] if plural in objects else []
        return await scripted.listing(*found, version=5)(request)

    scripted.lists = [listing]
    scripted.watches = [scripted.stream(then="hang")]
    scripted.others = [scripted.json(objects["gadgets"])]


async def test_nothing_is_said_to_be_missing_before_it_is_known_what_is_there(
    scripted: ScriptedApi, tmp_path: Path
) -> None:
    """What a resource refers to is there, but after a restart its list comes late."""
    known = asyncio.Event()
    made = make("a", namespace="default", spec={"part": "p"})
    with_a_late_list(scripted, known, "parts", gadgets=made, parts=make("p", namespace="default"))
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    async with run_manager(path) as manager:
        await manager.engine.initially_assigned.wait()
        await async_eventually("a reconcile that waits", lambda: manager.reconciles >= 1)
        assert manager.writes == []
        known.set()
        await async_eventually(
            "('patch', '200') in manager.writes", lambda: ("patch", "200") in manager.writes
        )
    assert b"Waiting" not in b"".join(scripted.bodies)


async def test_nothing_is_made_before_it_is_known_what_is_there(
    scripted: ScriptedApi, tmp_path: Path
) -> None:
    """The child was made before a restart; its list comes late. A twin would be an error."""
    made = make("a", namespace="default", spec={"node": "n1"})
    identity = {"apiVersion": made["apiVersion"], "kind": made["kind"]}
    owner = {**identity, "uid": made["metadata"]["uid"], "controller": True}
    metadata = {"ownerReferences": [owner]}
    child = make("a-config", namespace="default", metadata=metadata, data={"data": ""})
    known = asyncio.Event()
    with_a_late_list(scripted, known, "configmaps", gadgets=made, configmaps=child)
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    async with run_manager(path) as manager:
        await async_eventually("a reconcile that waits", lambda: manager.reconciles >= 1)
        assert manager.engine.jobs.find(key_of("a"))
        assert manager.edge.desired == {}
        assert not manager.engine.initially_assigned.is_set()
        known.set()
        await manager.engine.initially_assigned.wait()
        await async_eventually(
            "('patch', '200') in manager.writes", lambda: ("patch", "200") in manager.writes
        )
        written = [request.path.split("/")[-1] for request in scripted.paths("other")]
        assert "configmaps" not in written


# ---- readiness ----------------------------------------------------------------------------------


async def test_a_missing_crd_is_named_with_its_remedy_and_found_once_installed(
    bare_cluster: LocalApi, user: User
) -> None:
    async with run_manager(bare_cluster.kubeconfig) as manager:
        await async_eventually(
            "'helm upgrade' in str(manager.engine.health().reasons)",
            lambda: UPGRADE in str(manager.engine.health().reasons),
        )
        assert not manager.engine.health().ready
        assert "gadgets.test.edgeai.io" in manager.engine.health().reasons[0]
        await user.install_crds()
        await user.create(GADGETS, gadget("a"))
        await manager.wait_for_phase("a")
        assert manager.engine.health().ready


async def test_it_is_not_ready_while_the_api_is_away(cluster: LocalApi, user: User) -> None:
    settings = EngineSettings(informer=FAST, stale_after_s=0.2)
    async with run_manager(cluster.kubeconfig, settings=settings) as manager:
        await async_eventually(
            "manager.engine.health().ready", lambda: manager.engine.health().ready
        )
        await cluster.stop()
        await async_eventually(
            "not manager.engine.health().ready", lambda: not manager.engine.health().ready
        )
        assert "no contact for" in manager.engine.health().reasons[0]


async def test_sessions_may_begin_once_every_resource_was_given_to_the_sink(
    cluster: LocalApi, user: User
) -> None:
    for number in range(20):
        await user.create(GADGETS, gadget(f"g{number}", node="n1", part="missing"))
    await user.create(GADGETS, gadget("bad", bug="assignments"))
    async with run_manager(cluster.kubeconfig) as manager:
        assert not manager.engine.initially_assigned.is_set()
        async with asyncio.timeout(10):
            await manager.engine.initially_assigned.wait()
        assert len(manager.edge.desired) == 20


async def test_with_no_resources_sessions_may_begin(manager: Manager) -> None:
    async with asyncio.timeout(10):
        await manager.engine.initially_assigned.wait()


# ---- scope and look-up --------------------------------------------------------------------------


async def test_a_group_that_is_not_served_is_left_alone(cluster: LocalApi, user: User) -> None:
    settings = EngineSettings(informer=FAST, groups=("other.io",))
    async with run_manager(cluster.kubeconfig, settings=settings) as manager:
        await user.create(GADGETS, gadget("a"))
        await manager.engine.initially_assigned.wait()
        await user.create(NODES, {"metadata": {"name": "later"}})
        await async_eventually("the Node that came later", manager.engine.jobs.nodes)
        assert manager.engine.jobs.find(key_of("a")) is None
        assert manager.writes == []


async def test_only_the_watched_namespace_is_served(cluster: LocalApi, user: User) -> None:
    settings = EngineSettings(informer=FAST, namespace="default")
    await user.create(NAMESPACES, {"metadata": {"name": "other"}})
    async with run_manager(cluster.kubeconfig, settings=settings) as manager:
        await user.create(GADGETS, gadget("a", namespace="other"))
        await user.create(GADGETS, gadget("b"))
        await manager.wait_for_phase("b")
        assert manager.engine.jobs.find(key_of("a", "other")) is None


async def test_objects_are_found_by_key_uid_and_plural(manager: Manager, user: User) -> None:
    made = await user.create(GADGETS, gadget("a"))
    await manager.wait_for_phase("a")
    uid = Uid(made["metadata"]["uid"])
    served = manager.engine.jobs.by_uid(uid)
    assert served is not None
    assert served.kind.definition.name == GADGET.definition.name
    assert served.ref == ObjectRef(GADGETS, "default", "a")
    object_ = served.object
    assert manager.engine.jobs.get(served.ref) == object_
    for plural in ("gadgets", "gadgets.test.edgeai.io"):
        assert manager.engine.jobs.list(plural) == (object_,)
    assert manager.engine.jobs.list("gadgets", "elsewhere") == ()
    assert manager.engine.jobs.list("gizmos") == ()
    assert manager.engine.jobs.find(key_of("b")) is None
    assert manager.engine.jobs.by_uid(Uid("nobody")) is None


async def test_nodes_are_known(manager: Manager, user: User) -> None:
    await user.create(NODES, {"metadata": {"name": "n1"}})
    await async_eventually(
        "len(manager.engine.jobs.nodes()) == 1", lambda: len(manager.engine.jobs.nodes()) == 1
    )


async def test_metrics_tell_what_was_done(manager: Manager, user: User) -> None:
    await user.create(GADGETS, gadget("good"))
    await user.create(GADGETS, gadget("bad", bug="plan"))

    async def counted(name: str, **labels: str) -> None:
        labels |= {"kind": "Gadget"}
        await async_eventually(
            f"{name} {labels}", lambda: manager.registry.get_sample_value(name, labels)
        )

    await counted("edgeai_reconciles_total", result="ok")
    await counted("edgeai_reconciles_total", result="bug")
    await counted("edgeai_reconcile_retries_total")
    stale_s = manager.registry.get_sample_value(
        "edgeai_informer_stale_seconds", {"resource": str(GADGETS), "selector": ""}
    )
    assert stale_s is not None
    assert 0 <= stale_s < 10


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_job_too_large_for_its_status_is_told_by_an_event_and_left_alone(
    manager: Manager, user: User
) -> None:
    # The object itself just fits; its .status does not.
    probe = await user.create(GADGETS, gadget("tiny", data="x", padding=""))
    room = ETCD_BYTES - len(msgspec.json.encode(probe)) - 10
    await user.create(GADGETS, gadget("huge", data="x", padding="x" * room))
    events: list[Object] = []

    async def told() -> bool:
        listing = await user.client.list(EVENTS, namespace="default")
        events[:] = [each for each in listing.items if each["reason"] == "TooLarge"]
        return bool(events)

    await async_eventually("an Event", told)
    assert events[0]["involvedObject"]["name"] == "huge"
    assert "make the spec smaller" in events[0]["message"]
    refused = manager.requests.count(("patch", "500"))
    await user.create(GADGETS, gadget("small"))
    await manager.wait_for_phase("small")
    assert manager.requests.count(("patch", "500")) <= refused + 1
    await user.change_spec("huge", padding=None)
    await manager.wait_for_phase("huge")
