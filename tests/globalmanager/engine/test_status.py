"""Status is written by patch, to one uid, when something differs, and never lost between two."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from aiohttp import web

from edgeai.api.resources import Object, ObjectRef
from edgeai.ids import Uid
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Conflict, NotFound
from edgeai.kube.sender import ClientSettings
from globalmanager.cache.store import Store
from globalmanager.engine.status import NotKept, PatchOf, StatusWriter, status_of
from tests.globalmanager.cluster import LocalApi, User
from tests.globalmanager.gadgets import gadget
from tests.globalmanager.objects import GADGETS
from tests.globalmanager.scripted_api import ScriptedApi

REF = ObjectRef(GADGETS, "default", "a")


class Desk:
    """A writer over a store that sees nothing but its own writes, and a gadget `a`."""

    def __init__(self, client: KubeClient, made: Object, requests: list[str]) -> None:
        self.store = Store(GADGETS)
        self.store.upsert(made)
        self.requests = requests
        self.uid = Uid(made["metadata"]["uid"])
        self.writer = StatusWriter(client, lambda _type: self.store)

    async def write(self, **patch: Any) -> None:
        [seen] = self.store.list()
        await self.writer.write(REF, self.uid, patch, basis=status_of(seen))

    async def count(self, worker: str, count: int) -> None:
        """As a report does: a worker's count, and the sum of all."""

        def patch_of(status: Mapping[str, Any]) -> Mapping[str, Any]:
            workers = {**status.get("workers", {}), worker: count}
            return {"workers": {worker: count}, "total": sum(workers.values())}

        await self.writer.update(REF, self.uid, patch_of)


@pytest.fixture
async def desk(cluster: LocalApi, user: User) -> AsyncIterator[Desk]:
    made = await user.create(GADGETS, gadget("a"))
    requests: list[str] = []
    async with await KubeClient.from_kubeconfig(
        cluster.kubeconfig, on_request=lambda verb, _code, _s: requests.append(verb)
    ) as client:
        yield Desk(client, made, requests)


async def stored_status(user: User) -> Object:
    stored = await user.get(GADGETS, "a")
    assert stored is not None
    status: Object = stored.get("status") or {}
    return status


async def outsider_writes(user: User, **status: Any) -> None:
    await user.client.merge_patch(REF, {"status": status}, subresource="status")


async def test_a_patch_is_merged_and_seen_in_the_store(desk: Desk, user: User) -> None:
    await desk.write(phase="Ready", workers={"w": {"n": 1}})
    await desk.write(workers={"v": {"n": 2}}, phase=None)
    assert await stored_status(user) == {"workers": {"w": {"n": 1}, "v": {"n": 2}}}
    [seen] = desk.store.list()
    assert seen["status"] == await stored_status(user)


async def test_what_is_so_already_is_not_sent(desk: Desk) -> None:
    await desk.write(phase="Ready")
    desk.requests.clear()
    await desk.write(phase="Ready", gone=None)
    assert desk.requests == []


async def test_only_what_differs_is_sent(desk: Desk, user: User) -> None:
    await desk.write(phase="Ready", workers={"w": 1})
    await desk.write(phase="Ready", workers={"w": 2})
    assert await stored_status(user) == {"phase": "Ready", "workers": {"w": 2}}


async def test_a_successor_of_the_same_name_is_not_written(desk: Desk, user: User) -> None:
    await user.delete(GADGETS, "a")
    await user.create(GADGETS, gadget("a"))
    with pytest.raises(NotFound, match="the name was taken"):
        await desk.write(phase="Ready")
    assert await stored_status(user) == {}


async def test_an_object_that_is_gone_is_not_found(desk: Desk, user: User) -> None:
    await user.delete(GADGETS, "a")
    with pytest.raises(NotFound):
        await desk.write(phase="Ready")


async def test_an_object_that_the_store_does_not_know_yet_is_fetched(
    kube: KubeClient, cluster: LocalApi, user: User
) -> None:
    made = await user.create(GADGETS, gadget("a"))
    empty = Store(GADGETS)
    writer = StatusWriter(kube, lambda _type: empty)
    await writer.write(REF, Uid(made["metadata"]["uid"]), {"phase": "Ready"}, basis={})
    assert await stored_status(user) == {"phase": "Ready"}


async def test_a_spec_that_changed_meanwhile_does_not_matter(desk: Desk, user: User) -> None:
    await user.change_spec("a", data="new")
    await desk.write(phase="Ready")
    assert await stored_status(user) == {"phase": "Ready"}


async def test_a_report_waits_where_the_spec_is_newer_than_its_assignment(
    desk: Desk, user: User
) -> None:
    """The worker may belong to another node now, which only the newer spec says."""
    await user.change_spec("a", node="n2")
    with pytest.raises(Conflict, match="its spec is of generation 2, not 1"):
        await desk.writer.update(REF, desk.uid, count_one("w"), generation=1)
    assert await stored_status(user) == {}
    await desk.writer.update(REF, desk.uid, count_one("w"), generation=2)
    assert await stored_status(user) == {"workers": {"w": 1}}


async def test_a_status_that_somebody_else_changed_must_be_looked_at_first(
    desk: Desk, user: User
) -> None:
    await outsider_writes(user, phase="Failed")
    with pytest.raises(Conflict):
        await desk.write(phase="Ready")
    [seen] = desk.store.list()
    assert seen["status"] == {"phase": "Failed"}
    await desk.write(phase="Ready")
    assert await stored_status(user) == {"phase": "Ready"}


async def test_two_replicas_that_write_one_status_lose_nothing(desk: Desk, user: User) -> None:
    """The other one's store is as old as this one's."""
    await outsider_writes(user, workers={"x": 5}, total=5)
    await desk.count("w", 7)
    assert await stored_status(user) == {"workers": {"x": 5, "w": 7}, "total": 12}


async def test_a_plan_of_an_older_status_is_not_sent(desk: Desk, user: User) -> None:
    await desk.count("w", 5)
    basis = await stored_status(user)
    await desk.count("w", 9)
    desk.requests.clear()
    with pytest.raises(Conflict):
        await desk.writer.write(REF, desk.uid, {"total": 5, "phase": "Ready"}, basis=basis)
    assert desk.requests == []
    assert (await stored_status(user))["total"] == 9


async def test_a_plan_waits_for_a_report_that_is_under_way(desk: Desk, user: User) -> None:
    plan = {"total": 0, "phase": "Ready"}
    async with asyncio.TaskGroup() as writers:
        writers.create_task(desk.count("w", 9), name="report")
        await asyncio.sleep(0)
        with pytest.raises(Conflict):
            await desk.writer.write(REF, desk.uid, plan, basis={})
    assert await stored_status(user) == {"workers": {"w": 9}, "total": 9}


def count_one(worker: str) -> PatchOf:
    return lambda _status: {"workers": {worker: 1}}


async def test_fields_that_the_api_drops_are_written_again_only_after_a_while(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    """Each such write gives the object another version, and so another event."""
    made = {**gadget("a"), "metadata": {"name": "a", "namespace": "default"}}
    made["metadata"] |= {"uid": "u", "resourceVersion": "1"}

    async def drop(request: web.Request) -> web.StreamResponse:
        version = {**made["metadata"], "resourceVersion": str(len(scripted.seen) + 1)}
        return await scripted.json({**made, "metadata": version})(request)

    scripted.others = [drop]
    store = Store(GADGETS)
    store.upsert(made)
    client = scripted_client.apart(ClientSettings())
    slow, quick = (StatusWriter(client, lambda _type: store, retry_s=s) for s in (600.0, 0.0))

    async def write(writer: StatusWriter) -> None:
        with pytest.raises(NotKept, match=r"drops status\.total"):
            await writer.update(REF, Uid("u"), lambda _status: {"total": 1})

    for _ in range(3):
        await write(slow)
    assert len(scripted.seen) == 1
    for _ in range(2):
        await write(quick)
    assert len(scripted.seen) == 3
