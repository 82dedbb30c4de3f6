"""A node loses its disk and with it its ledger. Two replicas have a report of each of its ledgers.

The path of two replicas is the real one: WebSockets on loopback, session, inbox, fold, the writer
of .status, and an API server. The store of each replica sees nothing but its own requests.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from common import wire
from edgeai.api.resources import Object, ObjectRef
from edgeai.ids import TaskKey, Uid, WorkerName
from edgeai.kube.client import KubeClient
from globalmanager.cache.store import Store
from globalmanager.contract import Assignment, Served, task_key
from globalmanager.edge.sessions.report_writer import JobReportWriter
from globalmanager.engine.events import Recorder
from globalmanager.engine.status import PatchOf, StatusWriter
from globalmanager.kinds.edge.jointinferenceservice import KIND
from globalmanager.manifests.crds import crd
from localcontroller.ledger.outbox import Outgoing
from tests.globalmanager.cluster import CRDS, User
from tests.globalmanager.edge.world import A, EdgeSide, Peer, report_body
from tests.globalmanager.kinds.edge.samples import EDGEAI, joint_inference_spec
from tests.support.waiting import async_eventually

REF: Final = ObjectRef(EDGEAI, "default", "digits")
WORKER: Final = WorkerName("digits-edge")
OLD, NEW = "old-ledger", "new-ledger"


class EdgeReplica(EdgeSide):
    """The edge side of one replica, and the way of its reports to the API."""

    def __init__(self, token_file: Path, client: KubeClient, made: Object) -> None:
        self.uid = Uid(made["metadata"]["uid"])
        self.reaches_api = asyncio.Event()
        self.reaches_api.set()
        self._store = Store(EDGEAI)
        self._store.upsert(made)
        self._writer = StatusWriter(client, lambda _type: self._store)
        fold = JobReportWriter(jobs=self, writer=self, recorder=Recorder(client))
        super().__init__(token_file, writer=fold)
        grants = {WORKER: wire.WorkerGrant("0" * 64)}
        body = wire.AssignmentBody(namespace=REF.namespace, name=REF.name, workers=grants)
        self.desired.assign(task_key(REF), {A: Assignment(task_key(REF), self.uid, 1, body)})

    def slice(self, _job: Object, _name: str) -> Object | None:
        return None

    def find(self, _key: TaskKey) -> Served | None:
        return Served(KIND, REF, self._store.list()[0])

    async def update(
        self, ref: ObjectRef, uid: Uid, patch_of: PatchOf, *, generation: int | None
    ) -> None:
        await self.reaches_api.wait()
        await self._writer.update(ref, uid, patch_of, generation=generation)

    async def update_slice(
        self, ref: ObjectRef, uid: Uid, name: str, patch_of: PatchOf, *, generation: int | None
    ) -> None:
        raise AssertionError("the service has no fleet")

    async def send(self, peer: Peer, status: wire.WorkerStatus) -> None:
        """The node reports its worker."""
        peer.session.report(Outgoing(self.uid, WORKER, 1, 1, report_body(status)))
        await peer.flush()

    async def tell(self, ledger_id: str, status: wire.WorkerStatus) -> None:
        """The node opens a session, and reports its worker until that is acknowledged."""
        async with self.peer(instance=ledger_id) as peer:
            await self.send(peer, status)
            await async_eventually("an acknowledgement", lambda: peer.acked)


@pytest.fixture
async def replicas(
    kube: KubeClient, user: User, tmp_path: Path
) -> AsyncIterator[tuple[EdgeReplica, EdgeReplica]]:
    await user.create(CRDS, crd(KIND, EDGEAI))
    metadata = {"name": REF.name, "namespace": REF.namespace}
    made = await user.create(EDGEAI, {"metadata": metadata, "spec": joint_inference_spec()})
    east, west = (EdgeReplica(tmp_path / name, kube, made) for name in ("east", "west"))
    async with east.running(), west.running():
        yield east, west


async def entry(user: User) -> Any:
    stored = await user.get(EDGEAI, REF.name)
    assert stored is not None
    return stored["status"]["workers"][WORKER]


@pytest.mark.parametrize("is_over", [True, False], ids=["its session is over", "nobody noticed"])
async def test_a_late_report_of_the_old_ledger_replaces_none_of_the_new_one(
    replicas: tuple[EdgeReplica, EdgeReplica], user: User, *, is_over: bool
) -> None:
    east, west = replicas
    east.reaches_api.clear()
    async with east.peer(instance=OLD) as silent:
        await east.send(silent, "running")
        await async_eventually("a report that waits", lambda: east.inbox.depth == 1)
        if is_over:
            await silent.websocket.close()
            await async_eventually("the end", lambda: not list(east.sessions.snapshot()))
        await west.tell(NEW, "completed")
        east.reaches_api.set()
        await async_eventually("no report that waits", lambda: east.inbox.depth == 0)
        assert silent.acked == []
    assert (await entry(user))["instance"] == NEW
    assert (await entry(user))["status"] == "completed"


async def test_a_node_that_lives_reports_again_in_a_session_that_knows_the_other_ledger(
    replicas: tuple[EdgeReplica, EdgeReplica], user: User
) -> None:
    """East has not heard of the old ledger when the session with the new one begins."""
    east, west = replicas
    await west.tell(OLD, "running")
    async with east.peer(instance=NEW) as peer:
        await east.send(peer, "completed")
        await async_eventually("the end of the session", lambda: peer.close_code)
        assert (peer.close_code, peer.acked) == (wire.Close.GOING_AWAY, [])
    assert (await entry(user))["instance"] == OLD
    await east.tell(NEW, "completed")
    assert (await entry(user))["instance"] == NEW
    assert east.sample("edgeai_edge_reports_total", outcome="dropped") == 1


async def test_a_new_ledger_replaces_an_old_one_that_its_replica_knows_at_once(
    replicas: tuple[EdgeReplica, EdgeReplica], user: User
) -> None:
    east, _ = replicas
    await east.tell(OLD, "completed")
    await east.tell(NEW, "running")
    assert (await entry(user))["instance"] == NEW
