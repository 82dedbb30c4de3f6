"""Whatever node A sends, each object that is not bound to A stays as it is, byte for byte, and A's
own objects stay within their budget.

The path is the real one: a WebSocket on loopback, the session, the inbox, the fold of each kind,
the writer of .status, and an API server that stores the objects.
"""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

from common import wire
from edgeai.api.resources import Object, ObjectRef, ResourceType, ref_of
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName
from edgeai.kube.client import KubeClient
from globalmanager.cache.store import Store
from globalmanager.contract import Kind, Observed, Served, WorkerSettings, task_key
from globalmanager.edge.door.admission import AdmissionLimits
from globalmanager.edge.sessions.report_writer import JobReportWriter
from globalmanager.engine.events import Recorder
from globalmanager.engine.status import StatusWriter
from globalmanager.kinds import KINDS
from globalmanager.kinds.shared.stored import stored_bytes
from globalmanager.kinds.shared.worker_status import MAX_NODE_BYTES, MAX_WORKER_BYTES
from tests.globalmanager.cluster import CRDS, LocalApi
from tests.globalmanager.edge.world import QUICK_RETRY, A, B, EdgeSide
from tests.globalmanager.kinds.edge.samples import federated_learning_spec, joint_inference_spec
from tests.support.manifests import definitions
from tests.support.waiting import async_eventually

NO_CONTACTS: Final[dict[Any, Any]] = {}
SETTINGS: Final = WorkerSettings(root_key=bytes(32))
OWN, FOREIGN, SHARED = "own", "foreign", "shared"


def manifests() -> list[Object]:
    """Jobs of A alone, of B alone, and one that both share."""
    shared = federated_learning_spec()
    for worker, node in zip(shared["trainingWorkers"], (A, B), strict=True):
        worker["nodeName"] = node
    made = [_object("FederatedLearningJob", SHARED, shared)]
    for name, node in ((OWN, A), (FOREIGN, B)):
        service = joint_inference_spec(edge={"nodeName": node})
        made.append(_object("JointInferenceService", name, service))
        dataset = {"url": "/data/a.csv", "format": "csv", "nodeName": node}
        made.append(_object("Dataset", name, dataset))
    return made


def _object(kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "edgeai.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


class Bench:
    """The objects in a real API, and the edge side that writes them."""

    def __init__(self, client: KubeClient, token_file: Path) -> None:
        self._client = client
        self._stores: dict[ResourceType, Store] = {}
        writer = StatusWriter(client, self._store)
        self.jobs: dict[TaskKey, Served] = {}
        fold = JobReportWriter(jobs=self, writer=writer, recorder=Recorder(client))
        limits = AdmissionLimits(per_address_per_s=1000, per_address_burst=1000)
        self.world = EdgeSide(token_file, limits=limits, inbox=QUICK_RETRY, writer=fold)

    def slice(self, _job: Object, _name: str) -> Object | None:
        return None

    def find(self, key: TaskKey) -> Served | None:
        return self.jobs.get(key)

    def _store(self, type_: ResourceType) -> Store:
        return self._stores.setdefault(type_, Store(type_))

    async def create(self, manifest: Object) -> None:
        kind, type_ = _kind_of(manifest)
        made = await self._client.create(type_, manifest)
        self._store(type_).observe(made)
        ref = ref_of(type_, made)
        self.jobs[task_key(ref)] = Served(kind, ref, made)
        job = kind.decode(type_, made)
        observed = Observed(
            type=type_,
            object=made,
            spec=job.spec,
            children={},
            pods=(),
            references={},
            contacts=NO_CONTACTS,
            settings=SETTINGS,
        )
        self.world.desired.assign(task_key(ref), kind.assignments(observed))

    def granted(self, node: NodeName) -> dict[TaskKey, set[WorkerName]]:
        """Task -> the workers that may report from the node."""
        desired = self.world.desired.for_node(node)
        bodies = {key: wire.unpack(task.body, wire.AssignmentBody) for key, task in desired.items()}
        return {key: {*body.workers} for key, body in bodies.items()}

    async def snapshot(self) -> dict[ObjectRef, Object]:
        refs = [served.ref for served in self.jobs.values()]
        return {ref: await self._client.get(ref) for ref in refs}

    async def attack(self, messages: list[bytes]) -> None:
        """Node A sends these messages in one session."""
        async with self.world.socket(A) as websocket:
            with contextlib.suppress(ConnectionClosed):
                for message in (HELLO, *messages):
                    await websocket.send(message)
        await async_eventually(
            "an end of all reports and sessions",
            lambda: self.world.inbox.depth == 0 and not list(self.world.sessions.snapshot()),
        )


def _kind_of(manifest: Object) -> tuple[Kind, ResourceType]:
    group = manifest["apiVersion"].partition("/")[0]
    return next(
        (kind, type_)
        for kind in KINDS
        for type_ in kind.definition.resources
        if (type_.group, type_.kind) == (group, manifest["kind"])
    )


HELLO: Final = wire.encode(wire.Hello([1], "ledger", {}))[0]
GREEDY: Final = {f"{'<' * 60}{number}": "<" * 256 for number in range(32)}
BODIES: Final = st.one_of(
    st.builds(
        wire.ReportBody,
        st.sampled_from(["inference", "<" * 400]),
        st.sampled_from(["running", "completed", "failed", "lost"]),
        st.sampled_from(["", "<" * 1024, "\x1b[31m"]),
        st.dictionaries(st.sampled_from(["seen", "uploaded", "x"]), st.integers(0, 2**60)),
        st.sampled_from([{}, GREEDY]),
    ).map(wire.pack),
    st.binary(max_size=20),
)


Granted = dict[TaskKey, set[WorkerName]]


def messages(jobs: dict[TaskKey, Served], own: Granted, foreign: Granted) -> Any:
    """Frames of every type, about jobs that exist, each as one message or in chunks, and junk.

    Reports that A may send are frequent; a frame that ends the session comes behind them.
    """
    uids = {key: Uid(served.object["metadata"]["uid"]) for key, served in jobs.items()}
    bound = [(uids[key], worker) for key, workers in own.items() for worker in sorted(workers)]
    known = sorted(
        {worker for each in (own, foreign) for names in each.values() for worker in names}
    )
    any_uid = st.sampled_from([*uids.values(), Uid("none")])
    any_worker = st.sampled_from([*known, WorkerName("none")])
    about = st.one_of(st.sampled_from(bound), st.tuples(any_uid, any_worker))
    seqs, versions, keys = st.integers(1, 70), st.integers(0, 3), st.sampled_from([*jobs])
    reports = st.builds(
        lambda seq, named, attempt, body: wire.Report(seq, named[0], named[1], attempt, body),
        *(seqs, about, versions, BODIES),
    )
    held = st.dictionaries(keys, st.builds(wire.TaskVersion, any_uid, versions), max_size=2)
    harmless = st.builds(wire.Ack, seqs, st.text(max_size=5)) | st.just(wire.Beat())
    last = st.one_of(
        st.builds(wire.Hello, st.just([1]), st.text(max_size=5), held),
        st.builds(wire.Welcome, st.just(1), versions, st.text(max_size=5)),
        st.builds(wire.Assign, seqs, keys, any_uid, versions, BODIES),
        st.builds(wire.Withdraw, seqs, keys, any_uid),
        st.builds(wire.Synced, seqs, st.lists(keys, max_size=2)),
        st.builds(wire.Chunk, st.binary(max_size=9), st.booleans()),
    )
    junk = st.binary(max_size=40).map(lambda data: [data])
    begin = st.lists(
        st.one_of(reports.map(wire.encode), reports.map(chunked), harmless.map(wire.encode)),
        max_size=10,
    )
    end = st.lists(last.map(wire.encode) | junk, max_size=2)
    return st.builds(
        lambda *parts: [one for part in parts for each in part for one in each], begin, end
    )


def reports_about(job: Served, workers: set[WorkerName]) -> list[bytes]:
    """A good report about each of these workers."""
    uid = Uid(job.object["metadata"]["uid"])
    body = wire.pack(wire.ReportBody(phase="inference", task_info={"seen": 3}))
    return [wire.encode(wire.Report(1, uid, worker, 1, body))[0] for worker in sorted(workers)]


def chunked(frame: wire.Report) -> list[bytes]:
    (whole,) = wire.encode(frame)
    return [wire.encode(chunk)[0] for chunk in wire.split(whole, 100)]


@pytest.fixture
async def crds(cluster: LocalApi, kube: KubeClient) -> None:
    plurals = ("jointinferenceservices", "federatedlearningjobs", "datasets")
    names = {f"{plural}.edgeai.io" for plural in plurals}
    for definition in definitions():
        if definition["metadata"]["name"] in names:
            await kube.create(CRDS, definition)


async def test_whatever_a_node_sends_the_objects_of_others_are_byte_identical(
    crds: None, kube: KubeClient, tmp_path: Path
) -> None:
    loop = asyncio.get_running_loop()
    bench = Bench(kube, tmp_path / "tokens")
    for manifest in manifests():
        await bench.create(manifest)
    before = await bench.snapshot()
    of_a, of_b = bench.granted(A), bench.granted(B)
    assert of_a.keys() != of_b.keys()
    written = 0

    async def check(sent: list[bytes]) -> None:
        nonlocal written
        await bench.attack(sent)
        for ref, object_ in (await bench.snapshot()).items():
            told = (object_.get("status") or {}).get("workers") or {}
            if ref.name == FOREIGN:
                assert json.dumps(object_) == json.dumps(before[ref])
            assert told.keys() <= of_a.get(task_key(ref), set())
            assert {entry["node"] for entry in told.values()} <= {A}
            assert stored_bytes(told) <= MAX_NODE_BYTES
            assert all(stored_bytes(entry) <= MAX_WORKER_BYTES for entry in told.values())
            written += len(told)
        assert bench.granted(B) == of_b

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(messages(bench.jobs, of_a, of_b))
    @example([one for task in of_a for one in reports_about(bench.jobs[task], of_a[task])])
    @example([one for task in of_b for one in reports_about(bench.jobs[task], of_b[task])])
    def attacks(sent: list[bytes]) -> None:
        asyncio.run_coroutine_threadsafe(check(sent), loop).result()

    async with bench.world.running():
        await asyncio.to_thread(attacks)
    assert written, "no report of A was written, so the test shows nothing"
