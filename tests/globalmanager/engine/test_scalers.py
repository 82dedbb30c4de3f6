"""What acts on a job from outside: it is found, adopted, told, and goes with the job."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from edgeai.api.resources import Object, ObjectRef, ResourceType
from globalmanager.contract import Adopt, Delete, Observed, PatchStatus, Plan
from tests.globalmanager import gadgets
from tests.globalmanager.cluster import CRDS, LocalApi, Manager, User, key_of, run_manager
from tests.globalmanager.gadgets import crd_of, gadget
from tests.globalmanager.objects import GADGETS, make
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.kubeconfig import write_kubeconfig
from tests.support.waiting import async_eventually

DIALS = ResourceType("test.edgeai.io", "v1", "dials", "Dial")
EXPIRED = "expired"


def names(dial: Object) -> str:
    return str(dial["spec"]["gadget"])


def plan(observed: Observed, now: datetime) -> Plan:
    """A gadget's, which adopts its dials, tells them, and shows which it has seen."""
    if observed.spec.data == EXPIRED:
        return Plan(stages=((Delete(observed.ref, observed.uid),),))
    made = gadgets.plan(observed, now)
    dials = [(ref, dial["metadata"]) for ref, dial in observed.scalers.items()]
    stages = (
        tuple(Adopt(ref, m["uid"]) for ref, m in dials if not m.get("ownerReferences")),
        tuple(PatchStatus(ref, m["uid"], {"phase": "Done"}) for ref, m in dials if _owned(m)),
    )
    status = {**(made.status or {}), "dials": [ref.name for ref, _ in dials]}
    return msgspec.structs.replace(made, stages=(*made.stages, *stages), status=status)


def _owned(metadata: Object) -> bool:
    return any(owner["kind"] == "Gadget" for owner in metadata.get("ownerReferences") or ())


KIND = msgspec.structs.replace(
    gadgets.GADGET, scalers={DIALS: names}, plan=plan, deletes_itself=True
)


def dial(name: str, gadget_name: str, **metadata: object) -> Object:
    return {
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"gadget": gadget_name},
    }


@pytest.fixture
async def manager(cluster: LocalApi, user: User) -> AsyncIterator[Manager]:
    await user.create(CRDS, crd_of(DIALS))
    async with run_manager(cluster.kubeconfig, kinds=[KIND]) as manager:
        yield manager


class Made:
    """A scripted API that has what is added; the list of the plural `late` hangs until released."""

    def __init__(self, scripted: ScriptedApi, directory: Path) -> None:
        self._scripted = scripted
        self._kubeconfig = write_kubeconfig(directory / "kubeconfig", scripted.url)
        self._objects: list[Object] = []
        self.late = ""
        scripted.lists = [self._list]
        scripted.watches = [scripted.stream(then="hang")]

    def add(self, object_: Object) -> None:
        self._objects.append(object_)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        plural = request.path.split("/")[-1]
        if plural == self.late:
            await self._scripted.released.wait()
        found = [each for each in self._objects if each["kind"].lower() + "s" == plural]
        return await self._scripted.listing(*found, version=5)(request)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Manager]:
        (job,) = (each for each in self._objects if each["kind"] == GADGETS.kind)
        self._scripted.others = [self._scripted.json(job)]
        async with run_manager(self._kubeconfig, kinds=[KIND]) as manager:
            yield manager


@pytest.fixture
def made(scripted: ScriptedApi, tmp_path: Path) -> Made:
    return Made(scripted, tmp_path)


async def owners_of(user: User, name: str) -> list[Object]:
    found = await user.get(DIALS, name)
    return [] if found is None else found["metadata"].get("ownerReferences") or []


async def until_done(user: User, name: str) -> None:
    async def phase() -> object:
        found = await user.get(DIALS, name)
        return None if found is None else (found.get("status") or {}).get("phase")

    while await phase() != "Done":
        pass


async def test_a_scaler_waits_for_its_job_and_is_adopted_once_the_job_appears(
    manager: Manager, user: User
) -> None:
    await user.create(DIALS, dial("d", "a"))
    await manager.engine.initially_assigned.wait()
    assert await owners_of(user, "d") == []
    made = await user.create(GADGETS, gadget("a"))
    await until_done(user, "d")
    (owner,) = await owners_of(user, "d")
    assert owner["uid"] == made["metadata"]["uid"]
    assert owner["kind"] == "Gadget"
    assert owner["controller"] is True


async def test_a_scaler_of_a_job_that_is_there_is_seen_changed_and_gone(
    manager: Manager, user: User
) -> None:
    await user.create(GADGETS, gadget("a"))
    await user.create(GADGETS, gadget("b"))
    await async_eventually(
        "manager.phase('a') == manager.phase('b') == 'Ready'",
        lambda: manager.phase("a") == manager.phase("b") == "Ready",
    )
    await user.create(DIALS, dial("d", "a"))
    await async_eventually(
        "manager.status('a')['dials'] == ['d']", lambda: manager.status("a")["dials"] == ["d"]
    )
    await user.client.merge_patch(ObjectRef(DIALS, "default", "d"), {"spec": {"gadget": "b"}})
    await async_eventually(
        "(manager.status('a')['dials'], manager.status('b')['dials']) == ([], ['d'])",
        lambda: (manager.status("a")["dials"], manager.status("b")["dials"]) == ([], ["d"]),
    )
    await user.delete(DIALS, "d")
    await async_eventually(
        "manager.status('b')['dials'] == []", lambda: manager.status("b")["dials"] == []
    )


async def test_the_oldest_scaler_comes_first(scripted: ScriptedApi, made: Made) -> None:
    """Of one second, by name."""
    ages = {"c": "2026-01-01T00:00:01Z", "b": "2026-01-01T00:00:02Z", "a": "2026-01-01T00:00:02Z"}
    for name, created in ages.items():
        spec = {"gadget": "a"}
        metadata = {"creationTimestamp": created}
        made.add(make(name, namespace="default", type_=DIALS, spec=spec, metadata=metadata))
    made.add(make("a", namespace="default", spec={}))
    async with made.run():
        await async_eventually(
            "b''dials':['c','a','b']' in b''.join(scripted.bodies)",
            lambda: b'"dials":["c","a","b"]' in b"".join(scripted.bodies),
        )


async def test_a_job_waits_until_its_scalers_are_known(scripted: ScriptedApi, made: Made) -> None:
    """Without them it would have another size for a moment."""
    made.add(make("a", namespace="default", spec={"node": "n1"}))
    made.add(make("d", namespace="default", type_=DIALS, spec={"gadget": "a"}))
    made.late = "dials"
    async with made.run() as manager:
        await async_eventually(
            "manager.engine.jobs.find(key_of('a'))", lambda: manager.engine.jobs.find(key_of("a"))
        )
        await async_eventually(
            "len(scripted.paths('watch')) >= 3", lambda: len(scripted.paths("watch")) >= 3
        )
        assert manager.writes == []
        scripted.released.set()
        await async_eventually(
            "b''dials':['d']' in b''.join(scripted.bodies)",
            lambda: b'"dials":["d"]' in b"".join(scripted.bodies),
        )
    assert b'"dials":[]' not in b"".join(scripted.bodies)


async def test_a_scaler_that_belongs_to_another_job_is_left_to_it(
    manager: Manager, user: User
) -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u", "controller": True}
    await user.create(GADGETS, gadget("a"))
    await manager.wait_for_phase("a")
    holder = await user.get(gadgets.CONFIGMAPS, "a-config")
    assert holder is not None
    other |= {"name": "a-config", "uid": holder["metadata"]["uid"]}
    await user.create(DIALS, dial("taken", "a", ownerReferences=[other]))
    await user.create(DIALS, dial("free", "a"))
    await async_eventually(
        "manager.status('a')['dials'] == ['free', 'taken']",
        lambda: manager.status("a")["dials"] == ["free", "taken"],
    )
    await until_done(user, "free")
    assert await owners_of(user, "taken") == [other]


async def test_a_scaler_that_another_adopted_first_is_looked_at_again(
    manager: Manager, user: User
) -> None:
    """The adoption is refused where the scaler has changed since it was observed."""
    await user.create(DIALS, dial("d", "a"))
    await user.create(GADGETS, gadget("a"))
    await user.client.merge_patch(
        ObjectRef(DIALS, "default", "d"), {"metadata": {"labels": {"edited": "meanwhile"}}}
    )
    await until_done(user, "d")
    assert len(await owners_of(user, "d")) == 1


async def test_a_name_that_cannot_be_read_is_none_and_harms_no_other(
    manager: Manager, user: User
) -> None:
    await user.create(DIALS, {"metadata": {"name": "odd", "namespace": "default"}, "spec": {}})
    await user.create(DIALS, dial("d", "a"))
    await user.create(GADGETS, gadget("a"))
    await until_done(user, "d")
    assert manager.status("a")["dials"] == ["d"]


async def test_a_job_whose_plan_deletes_it_is_gone_with_all_that_was_its(
    manager: Manager, user: User
) -> None:
    await user.create(GADGETS, gadget("a", node="n1"))
    await user.create(DIALS, dial("d", "a"))
    await until_done(user, "d")
    assert manager.edge.nodes_of("a") == ["n1"]
    await user.change_spec("a", data=EXPIRED)
    await async_eventually(
        "key_of('a') in manager.edge.forgotten", lambda: key_of("a") in manager.edge.forgotten
    )
    assert manager.edge.nodes_of("a") == []
    while await user.get(DIALS, "d") or await user.get(gadgets.CONFIGMAPS, "a-config"):
        pass
    assert await user.get(GADGETS, "a") is None
