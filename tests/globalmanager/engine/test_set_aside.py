"""An object that cannot be read is set aside: list and watch go on, and what was known stays."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from edgeai.api.resources import Object, ObjectRef, ResourceType
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Malformed
from edgeai.kube.objects import MAX_OBJECT_BYTES, Unreadable
from globalmanager.cache.informer import Informer, InformerSettings, InformerSubscriber
from globalmanager.cache.setaside import MAX_SET_ASIDE, SetAside
from globalmanager.cache.store import Store
from globalmanager.engine.events import EVENTS
from tests.globalmanager.cluster import LocalApi, Manager, User, run_manager
from tests.globalmanager.gadgets import CONFIGMAPS, gadget
from tests.globalmanager.objects import GADGETS, make
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.tasks import beside
from tests.support.waiting import async_eventually

SETTINGS = InformerSettings(watch_s=60.0, backoff_base_s=0.02, backoff_max_s=0.05)
ODD = {"labels": "odd"}
METRIC = "edgeai_objects_set_aside"


class Running(InformerSubscriber):
    """An informer that runs, and what it told."""

    def __init__(self, client: KubeClient) -> None:
        self.told: list[Unreadable] = []
        self.changes: list[tuple[str | None, str | None]] = []
        store = Store(GADGETS)
        store.subscribe(lambda old, new: self.changes.append((version_of(old), version_of(new))))
        self.informer = Informer(client, store, settings=SETTINGS, subscriber=self)

    def set_aside(self, _type: ResourceType, object_: Unreadable) -> None:
        self.told.append(object_)

    @property
    def names(self) -> list[str]:
        return [object_["metadata"]["name"] for object_ in self.informer.store.list()]

    @property
    def unreadable(self) -> list[str]:
        return sorted(object_.name for object_ in self.informer.set_aside)


def version_of(object_: Object | None) -> str | None:
    return None if object_ is None else object_["metadata"]["resourceVersion"]


@pytest.fixture
async def running(scripted_client: KubeClient) -> AsyncIterator[Running]:
    running = Running(scripted_client)
    async with beside(running.informer.run(), "informer"):
        yield running


def odd(name: str, version: int, **metadata: str) -> Object:
    return make(name, version=version, metadata={**ODD, **metadata})


def event(type_: str, object_: Object) -> Object:
    return {"type": type_, "object": object_}


def deep(name: str, version: int, *, levels: int = 2000) -> bytes:
    text = msgspec.json.encode(make(name, version=version))
    return text[:-1] + b',"spec":' + b'{"a":' * levels + b"1" + b"}" * levels + b"}"


def line(type_: bytes, object_: bytes) -> bytes:
    return b'{"type":"' + type_ + b'","object":' + object_ + b"}\n"


def page(*items: bytes, version: int) -> bytes:
    metadata = b'{"metadata":{"resourceVersion":"%d"},' % version
    return metadata + b'"items":[' + b",".join(items) + b"]}"


async def test_a_list_goes_on_without_what_is_too_deep(
    scripted: ScriptedApi, running: Running
) -> None:
    good = msgspec.json.encode(make("good", version=4))
    scripted.lists = [scripted.text(page(deep("bad", 3), good, version=5).decode())]
    scripted.watches = [scripted.stream(event("ADDED", make("new", version=6)), then="hang")]
    await async_eventually("a store of good and new", lambda: running.names == ["good", "new"])
    assert running.unreadable == ["bad"]
    assert running.informer.problem == ""
    assert len(scripted.paths("list")) == 1


async def test_a_watch_goes_on_after_what_cannot_be_read(
    scripted: ScriptedApi, running: Running
) -> None:
    huge = make("huge", version=8, spec={"x": "x" * (2 * MAX_OBJECT_BYTES)})
    scripted.lists = [scripted.listing(version=5)]
    scripted.watches = [
        scripted.stream(
            line(b"ADDED", deep("deep", 6)),
            event("ADDED", odd("odd", 7)),
            event("ADDED", huge),
            event("ADDED", make("good", version=9)),
            line(b"MODIFIED", deep("deep", 10)),
        ),
        scripted.stream(then="hang"),
    ]
    await scripted.wait_for("watch", 2)
    assert running.names == ["good"]
    assert running.unreadable == ["deep", "huge", "odd"]
    assert [object_.name for object_ in running.told] == ["deep", "odd", "huge"]
    # The next watch goes on after the last of them.
    assert scripted.paths("watch")[1].query["resourceVersion"] == "10"
    assert len(scripted.paths("list")) == 1


async def test_what_was_known_stays_until_it_can_be_read_again(
    scripted: ScriptedApi, running: Running
) -> None:
    scripted.lists = [
        scripted.listing(make("a", version=3), version=5),
        scripted.listing(odd("a", 6), version=7),
    ]
    scripted.watches = [
        scripted.stream(event("MODIFIED", odd("a", 6)), event("ERROR", {"code": 410})),
        scripted.hang(),
    ]
    await scripted.wait_for("watch", 2)
    assert running.unreadable == ["a"]
    assert running.changes == [(None, "3")]
    assert len(running.told) == 1, "a relist repeats nothing"


async def test_what_is_repaired_or_deleted_is_not_set_aside_any_more(
    scripted: ScriptedApi, running: Running
) -> None:
    scripted.lists = [
        scripted.listing(odd("a", 1), odd("b", 2), odd("c", 3), odd("d", 4), version=5)
    ]
    repair = event("MODIFIED", make("a", version=6))
    scripted.watches = [
        scripted.stream(repair, line(b"DELETED", deep("b", 7)), event("DELETED", make("c"))),
        scripted.stream(then="hang"),
    ]
    await scripted.wait_for("watch", 2)
    assert running.unreadable == ["d"]
    assert running.names == ["a"]
    assert scripted.paths("watch")[1].query["resourceVersion"] == "1"


async def test_a_known_object_is_deleted_though_its_last_state_cannot_be_read(
    scripted: ScriptedApi, running: Running
) -> None:
    scripted.lists = [scripted.listing(make("a", version=3), version=5)]
    scripted.watches = [scripted.stream(line(b"DELETED", deep("a", 6)), then="hang")]
    await async_eventually("the deletion", lambda: running.changes == [(None, "3"), ("3", None)])


async def test_a_list_that_lacks_an_object_ends_that_it_is_set_aside(
    scripted: ScriptedApi, running: Running
) -> None:
    scripted.lists = [scripted.listing(odd("a", 3), version=5), scripted.listing(version=9)]
    scripted.watches = [scripted.failure(410, "Expired"), scripted.stream(then="hang")]
    await scripted.wait_for("watch", 2)
    assert running.unreadable == []


@pytest.mark.parametrize("way", ["list", "watch"])
async def test_a_successor_that_cannot_be_read_keeps_nothing_of_its_predecessor(
    scripted: ScriptedApi, running: Running, way: str
) -> None:
    successor = odd("a", 6, uid="another")
    scripted.lists = [
        scripted.listing(make("a", version=3), version=5),
        scripted.listing(successor, version=7),
    ]
    news = event("ADDED", successor) if way == "watch" else event("ERROR", {"code": 410})
    scripted.watches = [scripted.stream(news), scripted.hang()]
    await async_eventually("a to be set aside", lambda: running.unreadable == ["a"])
    assert running.changes == [(None, "3"), ("3", None)]


async def test_what_has_another_fault_is_told_again(
    scripted: ScriptedApi, running: Running
) -> None:
    scripted.lists = [scripted.listing(odd("a", 3), version=5)]
    scripted.watches = [
        scripted.stream(event("MODIFIED", odd("a", 6)), line(b"MODIFIED", deep("a", 7))),
        scripted.stream(then="hang"),
    ]
    await scripted.wait_for("watch", 2)
    assert ["labels" in object_.problem for object_ in running.told] == [True, False]


def test_so_many_are_known_by_name_and_no_more() -> None:
    set_aside = SetAside(GADGETS)
    for number in range(MAX_SET_ASIDE + 10):
        set_aside.add(Unreadable("ns", f"a{number}", "u", "1", "odd"))
    assert len(set_aside) == MAX_SET_ASIDE
    set_aside.discard(ObjectRef(GADGETS, "ns", "a5"))
    assert set_aside.add(Unreadable("ns", "another", "u", "1", "odd"))


# ---- the engine, on the local cluster -----------------------------------------------------------


def nested(levels: int) -> Object:
    value: Object = {}
    for _ in range(levels):
        value = {"a": value}
    return value


async def make_unreadable(user: User, name: str) -> None:
    """As somebody does whose own tools can read it."""
    with pytest.raises(Malformed, match=r"spec\.data\.a\.a"):
        await user.change_spec(name, data=nested(200))


async def warnings(user: User) -> list[Object]:
    events = (await user.client.list(EVENTS, namespace="default")).items
    return [each for each in events if each["reason"] == "Unreadable"]


def set_aside(manager: Manager) -> float | None:
    labels = {"resource": str(GADGETS), "selector": ""}
    return manager.registry.get_sample_value(METRIC, labels)


async def test_others_are_reconciled_and_the_fault_is_told(manager: Manager, user: User) -> None:
    await user.create(GADGETS, gadget("bad", node="n1"))
    await manager.wait_for_phase("bad")
    await make_unreadable(user, "bad")
    await async_eventually("one object that is set aside", lambda: set_aside(manager) == 1)
    await user.create(GADGETS, gadget("good", node="n1"))
    await manager.wait_for_phase("good")
    health = manager.engine.health()
    assert health.ready
    assert any("default/bad is set aside: spec.data.a" in reason for reason in health.reasons)
    told = await async_eventually("a warning about the object", lambda: warnings(user))
    assert [each["involvedObject"]["name"] for each in told] == ["bad"]
    assert "make it flatter" in told[0]["message"]


async def test_what_runs_stays_and_nothing_new_is_made_until_it_can_be_read(
    manager: Manager, user: User
) -> None:
    await user.create(GADGETS, gadget("a", node="n1"))
    await manager.wait_for_phase("a")
    await make_unreadable(user, "a")
    await async_eventually("one object that is set aside", lambda: set_aside(manager) == 1)
    assert manager.edge.nodes_of("a") == ["n1"]
    assert await user.get(CONFIGMAPS, "a-config") is not None
    await user.delete(CONFIGMAPS, "a-config")
    await user.create(GADGETS, gadget("b"))
    await manager.wait_for_phase("b")
    assert await user.get(CONFIGMAPS, "a-config") is None
    await user.change_spec("a", data="flat")
    await async_eventually("nothing to be set aside", lambda: set_aside(manager) == 0)
    await async_eventually(
        "generation 3 in the status", lambda: manager.status("a").get("observedGeneration") == 3
    )
    assert await user.get(CONFIGMAPS, "a-config") is not None


async def test_a_manager_that_starts_beside_it_is_ready(cluster: LocalApi, user: User) -> None:
    await user.create(GADGETS, gadget("bad", node="n1"))
    await make_unreadable(user, "bad")
    await user.create(GADGETS, gadget("good", node="n1"))
    async with run_manager(cluster.kubeconfig) as manager:
        await async_eventually(
            "the first reconcile of each job", manager.engine.initially_assigned.is_set
        )
        await manager.wait_for_phase("good")
        assert manager.engine.health().ready
        assert set_aside(manager) == 1
        await user.delete(GADGETS, "bad")
        await async_eventually("nothing to be set aside", lambda: set_aside(manager) == 0)
        assert manager.engine.health().reasons == ()


def test_the_objects_of_one_namespace_hide_no_object_of_another() -> None:
    set_aside = SetAside(GADGETS)

    def add(namespace: str, name: str) -> bool:
        return set_aside.add(Unreadable(namespace, name, "uid", "1", "too deep"))

    for number in range(MAX_SET_ASIDE + 10):
        add("attacker", str(number))
    assert add("neighbour", "a")
    assert ObjectRef(GADGETS, "neighbour", "a") in set_aside
    assert not add("attacker", "one more")
    for number in range(MAX_SET_ASIDE):
        add("neighbour", str(number))
    by_namespace = [object_.namespace for object_ in set_aside]
    assert len(by_namespace) == MAX_SET_ASIDE
    assert by_namespace.count("attacker") == MAX_SET_ASIDE / 2
    set_aside.retain([])
    assert add("attacker", "0")
