"""Slices of a fleet's reports: their sums are exact when replicas write them at once."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Final

import pytest

from edgeai.api import slices
from edgeai.api.resources import CONFIG_MAPS, Object, ObjectRef
from edgeai.errors import Unwritable
from edgeai.ids import TaskKey, Uid, WorkerName
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Conflict
from globalmanager.cache.store import Store
from globalmanager.contract import Served, task_key
from globalmanager.edge.sessions.inbox import Done
from globalmanager.edge.sessions.report_writer import JobReportWriter
from globalmanager.engine.events import Recorder
from globalmanager.engine.jobs import Jobs
from globalmanager.engine.status import StatusWriter
from globalmanager.kinds.edge.jointinferenceservice import KIND
from globalmanager.kinds.shared.worker_status import MAX_WORKER_BYTES
from globalmanager.manifests.crds import crd
from tests.globalmanager.cluster import CRDS, LocalApi, User
from tests.globalmanager.engine.stores import Stores
from tests.globalmanager.kinds.edge.samples import EDGEAI, joint_inference_spec
from tests.support.world import report

REF: Final = ObjectRef(EDGEAI, "default", "digits")
WORKERS: Final = [WorkerName(f"digits-node-edge{number}") for number in range(12)]


class FleetReplica:
    """The way of a report at one replica, whose stores see nothing but its own requests."""

    def __init__(self, client: KubeClient, made: Object, maps: list[Object]) -> None:
        self._uid = Uid(made["metadata"]["uid"])
        self._stores = {EDGEAI: Store(EDGEAI), CONFIG_MAPS: Store(CONFIG_MAPS)}
        self._stores[EDGEAI].upsert(made)
        for one in maps:
            self._stores[CONFIG_MAPS].upsert(one)
        writer = StatusWriter(client, self._stores.__getitem__)
        self._fold = JobReportWriter(jobs=self, writer=writer, recorder=Recorder(client))

    def find(self, _key: TaskKey) -> Served | None:
        return Served(KIND, REF, self._stores[EDGEAI].list()[0])

    def slice(self, _job: Object, name: str) -> Object | None:
        return self._stores[CONFIG_MAPS].get(ObjectRef(CONFIG_MAPS, "default", name))

    async def receive(self, *workers: WorkerName) -> None:
        reports = [
            report(worker=name, node=name.removeprefix("digits-node-"), counts={"uploaded": 10})
            for name in workers
        ]
        for name in sorted({slices.slice_name(REF.name, worker) for worker in workers}):
            part = [one for one in reports if slices.slice_name(REF.name, one.worker) == name]
            outcomes = await self._fold.write(task_key(REF), self._uid, part)
            assert outcomes == [Done()] * len(part)


class Fleet:
    """A service with its slices."""

    def __init__(self, client: KubeClient, user: User, made: Object) -> None:
        self._client, self._user, self._made = client, user, made
        self.maps: list[Object] = []

    async def make_slices(self, owner: str, data: Mapping[str, str] = MappingProxyType({})) -> None:
        reference = {
            "apiVersion": EDGEAI.api_version,
            "kind": EDGEAI.kind,
            "name": REF.name,
            "uid": owner or self._made["metadata"]["uid"],
            "controller": True,
        }
        for name in slices.slice_names(REF.name):
            metadata = {"name": name, "namespace": "default", "ownerReferences": [reference]}
            made = await self._user.create(CONFIG_MAPS, {"metadata": metadata, "data": {**data}})
            self.maps.append(made)

    def replica(self) -> FleetReplica:
        return FleetReplica(self._client, self._made, self.maps)

    async def parts(self) -> list[Object]:
        names = slices.slice_names(REF.name)
        stored = [await self._user.get(CONFIG_MAPS, name) for name in names]
        return [slices.part_of(one) for one in stored if one is not None]


@pytest.fixture
async def fleet(bare_cluster: LocalApi, user: User) -> AsyncIterator[Fleet]:
    await user.create(CRDS, crd(KIND, EDGEAI))
    metadata = {"name": REF.name, "namespace": REF.namespace}
    made = await user.create(EDGEAI, {"metadata": metadata, "spec": joint_inference_spec()})
    async with await KubeClient.from_kubeconfig(bare_cluster.kubeconfig) as client:
        yield Fleet(client, user, made)


async def test_reports_at_a_replica_each_end_in_exact_sums(fleet: Fleet, user: User) -> None:
    await fleet.make_slices("")
    replicas = [fleet.replica() for _ in range(3)]
    async with asyncio.TaskGroup() as tasks:
        for number, replica in enumerate(replicas):
            # the last word of each replica is also told by another one, as after a reconnection
            workers = WORKERS[number * 4 : number * 4 + 5]
            tasks.create_task(replica.receive(*workers), name=f"reports at replica {number}")
    parts = await fleet.parts()
    assert {worker for part in parts for worker in part["workers"]} == set(WORKERS)
    assert sum(part.get("uploadCount") or 0 for part in parts) == 10 * len(WORKERS)
    stored = await user.get(EDGEAI, REF.name)
    assert stored is not None
    assert not (stored.get("status") or {}).get("workers")


def test_a_config_map_of_another_owner_is_no_slice() -> None:
    stores = Stores()
    job = {"metadata": {"name": "x", "namespace": "default", "uid": "u"}}
    for name, uid in (("x-workers-0", "u"), ("x-workers-1", "another")):
        owner = {"uid": uid, "controller": True}
        metadata = {"name": name, "namespace": "default", "uid": name, "ownerReferences": [owner]}
        stores.put(CONFIG_MAPS, {"metadata": metadata})
    jobs = Jobs(stores)
    assert jobs.slice(job, "x-workers-0") is not None
    assert jobs.slice(job, "x-workers-1") is None


async def test_reports_wait_for_the_slices_of_their_own_service(fleet: Fleet) -> None:
    with pytest.raises(Conflict):
        await fleet.replica().receive(*WORKERS)
    await fleet.make_slices("of an earlier service")
    with pytest.raises(Conflict):
        await fleet.replica().receive(*WORKERS)
    assert not any(part["workers"] for part in await fleet.parts())


async def test_an_overfull_slice_is_neither_read_nor_written(fleet: Fleet, user: User) -> None:
    entries = {f"digits-{number}": "{}" for number in range(slices.MAX_WORKERS + 1)}
    await fleet.make_slices("", {**entries, slices.SUMMARY: "{}"})
    with pytest.raises(Unwritable, match="has 2002 entries, more than edgeai writes"):
        await fleet.replica().receive(WORKERS[0])
    for one in fleet.maps:
        stored = await user.get(CONFIG_MAPS, one["metadata"]["name"])
        assert stored == one
        assert slices.part_of(one) == {"workers": {}}
        assert slices.texts_of(one) == []


def test_a_slice_of_as_many_workers_as_edgeai_writes_is_read() -> None:
    data = {f"digits-{number}": "{}" for number in range(slices.MAX_WORKERS)}
    config_map = {"data": {**data, slices.SUMMARY: '{"uploadCount":3}'}}
    assert len(slices.texts_of(config_map)) == slices.MAX_WORKERS
    assert slices.part_of(config_map)["uploadCount"] == 3


def test_a_text_that_edgeai_has_not_written_is_not_decoded() -> None:
    long = '{"node":"' + "x" * slices.MAX_TEXT_CHARS + '"}'
    config_map = {"data": {"digits-a": long, slices.SUMMARY: long}}
    assert slices.entry_of(config_map, WorkerName("digits-a")) == {}
    assert slices.summary_of(config_map) == {}
    assert MAX_WORKER_BYTES < slices.MAX_TEXT_CHARS
