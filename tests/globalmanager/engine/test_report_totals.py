"""Totals of a JointInferenceService are exact when reports of its workers come in at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from edgeai.api.resources import Object, ObjectRef
from edgeai.ids import TaskKey, Uid
from edgeai.kube.client import KubeClient
from globalmanager.cache.store import Store
from globalmanager.contract import Served, task_key
from globalmanager.edge.sessions.inbox import Done
from globalmanager.edge.sessions.report_writer import JobReportWriter
from globalmanager.engine.events import Recorder
from globalmanager.engine.status import StatusWriter
from globalmanager.kinds.edge.jointinferenceservice import KIND
from globalmanager.manifests.crds import crd
from tests.globalmanager.cluster import CRDS, LocalApi, User
from tests.globalmanager.kinds.edge.samples import EDGEAI, joint_inference_spec
from tests.support.world import report

REF: Final = ObjectRef(EDGEAI, "default", "digits")
UPLOADED: Final = {"edge-a": 1, "edge-b": 20, "edge-c": 300}


class TotalsReplica:
    """The way of a report at one replica, whose store sees nothing but its own writes."""

    def __init__(self, client: KubeClient, made: Object) -> None:
        self._uid = Uid(made["metadata"]["uid"])
        self._store = Store(EDGEAI)
        self._store.upsert(made)
        writer = StatusWriter(client, lambda _type: self._store)
        self._fold = JobReportWriter(jobs=self, writer=writer, recorder=Recorder(client))

    def slice(self, _job: Object, _name: str) -> Object | None:
        return None

    def find(self, _key: TaskKey) -> Served | None:
        return Served(KIND, REF, self._store.list()[0])

    async def receive(self, *workers: str) -> None:
        reports = [report(worker=name, counts={"uploaded": UPLOADED[name]}) for name in workers]
        outcomes = await self._fold.write(task_key(REF), self._uid, reports)
        assert outcomes == [Done()] * len(reports)


class Field:
    """Replicas that have all seen the same, as yet unreported, service."""

    def __init__(self, client: KubeClient, made: Object, requests: list[str]) -> None:
        self._client, self._made = client, made
        self.requests = requests

    def replica(self) -> TotalsReplica:
        return TotalsReplica(self._client, self._made)


@pytest.fixture
async def field(bare_cluster: LocalApi, user: User) -> AsyncIterator[Field]:
    await user.create(CRDS, crd(KIND, EDGEAI))
    metadata = {"name": REF.name, "namespace": REF.namespace}
    made = await user.create(EDGEAI, {"metadata": metadata, "spec": joint_inference_spec()})
    requests: list[str] = []
    async with await KubeClient.from_kubeconfig(
        bare_cluster.kubeconfig, on_request=lambda verb, _code, _s: requests.append(verb)
    ) as client:
        yield Field(client, made, requests)


async def stored_status(user: User) -> Any:
    stored = await user.get(EDGEAI, REF.name)
    assert stored is not None
    assert set(stored["status"]["workers"]) == set(UPLOADED)
    return stored["status"]


async def test_reports_at_one_replica_become_one_patch_with_an_exact_sum(
    field: Field, user: User
) -> None:
    await field.replica().receive(*UPLOADED)
    assert (await stored_status(user))["uploadCount"] == 321
    assert field.requests == ["patch"]


async def test_reports_at_a_replica_each_end_in_an_exact_sum(field: Field, user: User) -> None:
    async with asyncio.TaskGroup() as reports:
        for worker in UPLOADED:
            receipt = field.replica().receive(worker)
            reports.create_task(receipt, name=f"report of {worker}")
    assert (await stored_status(user))["uploadCount"] == 321
