"""A Kubernetes API on a real socket for tests of the engine, and who plays the edge to it."""

import asyncio
import functools
import math
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import msgspec
from prometheus_client import CollectorRegistry

from common.clock import SYSTEM_CLOCK, Clock
from edgeai.api.resources import Object, ObjectRef, ResourceType
from edgeai.ids import NodeName, TaskKey
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import NotFound
from edgeai.kube.sender import ClientSettings
from edgeai.localcluster.api.server import Server, serve
from edgeai.localcluster.controllers.garbage_collector import GarbageCollector
from edgeai.localcluster.objects.containers import LogSource
from edgeai.localcluster.objects.resources import CUSTOMRESOURCEDEFINITIONS
from edgeai.localcluster.objects.store import Store
from globalmanager.cache.informer import InformerSettings
from globalmanager.contract import Assignment, Kind, WorkerSettings
from globalmanager.engine.build import build_engine
from globalmanager.engine.loop import Engine
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.settings import EngineSettings
from globalmanager.ha.contacts import Contacts
from globalmanager.ha.fence import Fence
from tests.globalmanager.gadgets import GADGET, PARTS, crd_of
from tests.globalmanager.objects import GADGETS
from tests.support.kubeconfig import write_kubeconfig
from tests.support.manifests import definitions
from tests.support.tasks import beside
from tests.support.waiting import async_eventually

TOKEN = "token-of-a-test"
CRDS = ResourceType(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
FAST = InformerSettings(backoff_base_s=0.02, backoff_max_s=0.1, absent_after_s=0.1)
WRITES = frozenset({"create", "update", "patch", "delete"})


@functools.cache
def _installed() -> bytes:
    """The state of an API with all of deploy/chart/definitions."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "state.db"
        store = Store(file)
        for definition in definitions():
            store.create(CUSTOMRESOURCEDEFINITIONS, definition)
        store.close()
        return file.read_bytes()


class LocalApi:
    """An API server and its garbage collector; `stop` and `start` play an outage.

    Args: is_installed: with all of deploy/chart/definitions
    """

    def __init__(self, directory: Path, *, is_installed: bool = False) -> None:
        file = directory / "state.db"
        if is_installed:
            file.write_bytes(_installed())
        self._store = Store(file)
        self._server: Server | None = None
        self._port = 0
        self.url = ""
        self._collector: asyncio.Task[None] | None = None
        self.kubeconfig = directory / "kubeconfig"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        self._server = await serve(self._store, token=TOKEN, port=self._port)
        self.url = self._server.url
        self._port = urlsplit(self.url).port or 0
        self._collector = asyncio.create_task(GarbageCollector(self._store).run(), name="collector")
        write_kubeconfig(self.kubeconfig, self._server.url, TOKEN)

    def serve_logs(self, source: LogSource) -> None:
        """Who has the logs of the pods, in place of a kubelet."""
        assert self._server is not None
        self._server.api.log_source = source

    @property
    def watches(self) -> int:
        """How many are open, those of the collector included."""
        return len(self._store.watches)

    async def stop(self) -> None:
        if self._server is None:
            return
        await self.stop_collector()
        await self._server.close()
        self._server = None

    async def stop_collector(self) -> None:
        """From now on nothing is collected, as by a garbage collector that is behind."""
        if self._collector is not None:
            self._collector.cancel()
            await asyncio.gather(self._collector, return_exceptions=True)
            self._collector = None

    async def close(self) -> None:
        await self.stop()
        self._store.close()


class User:
    """Someone with kubectl."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client

    async def create(self, type_: ResourceType, object_: Object) -> Object:
        return await self.client.create(type_, object_)

    async def get(self, type_: ResourceType, name: str) -> Object | None:
        try:
            return await self.client.get(ObjectRef(type_, "default", name))
        except NotFound:
            return None

    async def change_spec(self, name: str, **spec: object) -> Object:
        return await self.client.merge_patch(ObjectRef(GADGETS, "default", name), {"spec": spec})

    async def delete(self, type_: ResourceType, name: str) -> None:
        await self.client.delete(ObjectRef(type_, "default", name))

    async def install_crds(self) -> None:
        for type_ in (GADGETS, PARTS):
            await self.create(CRDS, crd_of(type_))


class Edge:
    """What the nodes are to hold, as the engine says; and which nodes are connected."""

    def __init__(self) -> None:
        self.contacts = Contacts()
        self.desired: dict[TaskKey, Mapping[NodeName, Assignment]] = {}
        self.forgotten: list[TaskKey] = []

    def assign(self, key: TaskKey, by_node: Mapping[NodeName, Assignment]) -> None:
        self.desired[key] = by_node

    def forget(self, key: TaskKey) -> None:
        self.desired.pop(key, None)
        self.forgotten.append(key)

    def connect(self, node: str) -> None:
        self.contacts.claim(NodeName(node), ledger="ledger")

    def nodes_of(self, name: str) -> list[str]:
        return sorted(self.desired.get(key_of(name), {}))


class Manager:
    """A running engine with an edge of its own."""

    def __init__(
        self,
        engine: Engine,
        edge: Edge,
        requests: list[tuple[str, str]],
        registry: CollectorRegistry,
    ) -> None:
        self.engine, self.edge, self.requests = engine, edge, requests
        self.registry = registry

    @property
    def reconciles(self) -> float:
        """How many have ended well, those included that wait for a list."""
        labels = {"kind": "Gadget", "result": "ok"}
        return self.registry.get_sample_value("edgeai_reconciles_total", labels) or 0.0

    @property
    def writes(self) -> list[tuple[str, str]]:
        """(verb, HTTP code) of each write so far."""
        return [(verb, code) for verb, code in self.requests if verb in WRITES]

    def status(self, name: str) -> Object:
        """As the engine's cache has it."""
        found = self.engine.jobs.find(key_of(name))
        return {} if found is None else found.object.get("status") or {}

    def phase(self, name: str) -> str:
        return str(self.status(name).get("phase", ""))

    async def wait_for_phase(self, name: str, phase: str = "Ready") -> None:
        """Until the engine's cache has it."""

        def check() -> bool:
            status = self.status(name)
            assert status.get("phase") == phase, f"status is {status}"
            return True

        await async_eventually(f"phase {phase} of job {name}", check)


def key_of(name: str, namespace: str = "default") -> TaskKey:
    return TaskKey(f"gadgets.test.edgeai.io/{namespace}/{name}")


def open_fence() -> Fence:
    """The fence of a replica that leads until a test closes the fence."""
    fence = Fence()
    fence.open_until(math.inf)
    return fence


@asynccontextmanager
async def run_manager(
    kubeconfig: Path,
    *,
    kinds: Sequence[Kind] = (GADGET,),
    settings: EngineSettings | None = None,
    fence: Fence | None = None,
    client_settings: ClientSettings = ClientSettings(),  # noqa: B008 - frozen
    rest_s: float = 0.0,
    clock: Clock = SYSTEM_CLOCK,
) -> AsyncIterator[Manager]:
    """A running engine and its edge.

    Args:
        rest_s: between two plans of one job. Without a rest a test that has seen the effect of a
            later change knows that the plans of earlier changes were made.
    """
    requests: list[tuple[str, str]] = []
    async with await KubeClient.from_kubeconfig(
        kubeconfig, client_settings, on_request=lambda verb, code, _s: requests.append((verb, code))
    ) as client:
        edge = Edge()
        registry = CollectorRegistry()
        engine = build_engine(
            client,
            kinds,
            sink=edge,
            contacts=edge.contacts,
            worker_settings=WorkerSettings(),
            settings=msgspec.structs.replace(
                settings or EngineSettings(informer=FAST, reconcilers=4), rest_s=rest_s
            ),
            fence=fence or open_fence(),
            metrics=EngineMetrics(registry),
            clock=clock,
        )
        async with beside(engine.run(root_key=bytes(32)), "engine"):
            yield Manager(engine, edge, requests, registry)
