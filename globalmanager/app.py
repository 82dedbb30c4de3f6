"""The one place that builds the GlobalManager's parts and joins their tasks.

Called by `__main__`. REST answers first, so that /readyz can say what a start waits for; edges
are admitted last, once every job resource was looked at.
"""

import asyncio
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from common.ids import NodeName
from common.logs import get_logger
from common.settings import split_address
from common.tasks import TaskGroup
from globalmanager.cache.informer import InformerSettings
from globalmanager.contract import Event, Severity, WorkerSettings
from globalmanager.edge.door.admission import AdmissionLimits
from globalmanager.edge.door.configuration import Admittance
from globalmanager.edge.door.server import EdgeServer
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.downstream import DesiredSets
from globalmanager.edge.sessions.fold import StatusFold
from globalmanager.edge.sessions.inbox import Inbox
from globalmanager.edge.sessions.link import LinkTiming
from globalmanager.edge.sessions.registry import Sessions
from globalmanager.engine.loop import Engine, EngineSettings, served_types
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.rootkey import get_root_key
from globalmanager.kinds import KINDS
from globalmanager.kube.client import ClientSettings, KubeClient
from globalmanager.kube.errors import NotFound
from globalmanager.kube.tokenreviews import TokenReviews
from globalmanager.replica import Book, Replica, end
from globalmanager.rest.api import Api
from globalmanager.rest.server import RestServer
from globalmanager.settings import Settings
from globalmanager.startup import Startup

log = get_logger(__name__)

VERSION: Final = "0.1.0"
_LIST_DEADLINES: Final = 3  # one page of a list may take longer than other requests


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set.

    Raises: SettingsError, OSError (an address cannot be listened on)
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    metrics = EngineMetrics(registry)
    admittance = Admittance(settings)
    client = await KubeClient.from_kubeconfig(
        Path(settings.kubeconfig) if settings.kubeconfig else None,
        ClientSettings(
            qps=settings.qps,
            burst=settings.burst,
            deadline_s=settings.request_deadline_s,
            list_deadline_s=_LIST_DEADLINES * settings.request_deadline_s,
        ),
        on_request=metrics.observe_request,
    )
    async with client, TaskGroup() as tasks:
        manager = Manager(settings, client, admittance, registry, metrics)
        serving = tasks.create_task(manager.run(), name="manager")
        stopping = tasks.create_task(stop.wait(), name="stop")
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        serving.cancel()


class Manager:
    """The parts, built in the order in which they need each other."""

    def __init__(
        self,
        settings: Settings,
        client: KubeClient,
        admittance: Admittance,
        registry: CollectorRegistry,
        metrics: EngineMetrics,
    ) -> None:
        self._settings = settings
        self._client = client
        self._admittance = admittance
        self._metrics = metrics
        self._edge_metrics = EdgeMetrics(registry)
        self._startup = Startup(
            lambda: self._replica.must_wait_for(), lambda: self._replica.complaints()
        )
        self._desired = DesiredSets()
        self._inbox = Inbox(
            binding_of=self._desired.task_of,
            fold_and_write=self._startup.fold_and_write,
            metrics=self._edge_metrics,
        )
        self._replica = Replica(
            settings,
            client,
            sessions=lambda: self._sessions,
            led=self._led,
            contact_changed=self._startup.contact_changed,
            clashed=self._duplicate_node,
            metrics=metrics,
        )
        self._sessions = Sessions(
            desired=self._desired,
            inbox=self._inbox,
            epoch=lambda: self._replica.epoch,
            contact_changed=self._replica.own_contact_changed,
            claims_changed=self._replica.own_claims_changed,
            duplicate_node=self._duplicate_node,
            elsewhere=self._replica.elsewhere,
            metrics=self._edge_metrics,
            timing=LinkTiming(session=settings.timing),
        )
        self._api = Api(
            cluster=self._startup,
            sessions=Book(self._replica, self._sessions),
            types=served_types(KINDS, settings.groups),
            is_populated=self._startup.is_populated,
            registry=registry,
            version=VERSION,
        )

    async def run(self) -> None:
        """Until cancelled."""
        http = split_address(self._settings.http_address, "setting httpAddress")
        async with RestServer(*http, routes=self._api.routes):
            engine = await self._start_engine()
            async with TaskGroup() as tasks:
                tasks.create_task(engine.run(), name="engine")
                tasks.create_task(self._inbox.run(), name="inbox")
                tasks.create_task(self._replica.observe(), name="other replicas")
                await self._serve(tasks)

    async def _serve(self, tasks: TaskGroup) -> None:
        """Until cancelled. Then the Lease is given up first, and the edges are told to go while
        the engine still takes in what they have sent; last, the others forget this replica."""
        presence = tasks.create_task(self._replica.attend(), name="presence")
        try:
            async with self._edge_server():
                elector = tasks.create_task(self._replica.stand(), name="elector")
                try:
                    await asyncio.Event().wait()
                finally:
                    await end(elector)
        finally:
            await end(presence)

    async def _start_engine(self) -> Engine:
        """Waits while the API is away, or refuses."""
        namespace = self._settings.system_namespace
        problem = self._startup.waits_for_api
        root_key = await get_root_key(self._client, namespace=namespace, on_problem=problem)
        engine = Engine(
            client=self._client,
            kinds=KINDS,
            sink=self._desired,
            contacts=self._replica,
            fence=self._replica.fence,
            workers=_worker_settings(self._settings, root_key),
            settings=EngineSettings(
                namespace=self._settings.namespace,
                groups=self._settings.groups,
                workers=self._settings.workers,
                stale_after_s=self._settings.stale_after_s,
                informer=InformerSettings(watch_s=self._settings.watch_s),
            ),
            metrics=self._metrics,
        )
        self._startup.joined(
            engine,
            StatusFold(
                find=engine.find,
                update=engine.status_writer.update,
                is_gone=lambda error: isinstance(error, NotFound),
            ),
        )
        return engine

    def _edge_server(self) -> EdgeServer:
        address = split_address(self._settings.edge_address, "setting edgeAddress")
        per_s = self._settings.admissions_per_s
        per_address_per_s = max(1.0, per_s * self._settings.admissions_address_share)
        return EdgeServer(
            *address,
            sessions=self._sessions,
            authenticator=self._admittance.authenticator(TokenReviews(self._client)),
            not_ready=self._startup.edges_must_wait,
            metrics=self._edge_metrics,
            limits=AdmissionLimits(
                per_s=per_s,
                burst=max(1, round(2 * per_s)),
                per_address_per_s=per_address_per_s,
                per_address_burst=round(2 * per_address_per_s),
            ),
            tls=self._admittance.tls,
            review_s=self._settings.edge_review_s,
        )

    def _led(self, leads: bool) -> None:
        if leads:
            self._startup.lead()

    def _duplicate_node(self, node: NodeName) -> None:
        """Two LocalControllers use one name: the leader tells who looks at the Node."""
        if not self._replica.leads:
            return  # which hears of it, too
        message = (
            f"two LocalControllers connect as {node} in turn; give each node a name and a token "
            "of its own"
        )
        self._startup.record_on_node(node, Event(Severity.WARNING, "DuplicateNode", message))


def _worker_settings(settings: Settings, root_key: bytes) -> WorkerSettings:
    return WorkerSettings(
        root_key=root_key,
        framework_images=settings.framework_images,
        storage_initializer_image=settings.storage_initializer_image,
        worker_api_port=settings.worker_api_port,
        contact_grace_s=settings.contact_grace_s,
    )
