"""The one place that builds the GlobalManager's parts and joins their tasks.

Called by `__main__`. REST answers first, so that /readyz can say what a start waits for; edges
are admitted last, once every job resource was looked at.
"""

import asyncio
import os
import socket
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from common.errors import SettingsError
from common.ids import NodeName
from common.logs import get_logger
from common.settings import split_address
from globalmanager.edge.admission import AdmissionLimits
from globalmanager.edge.desired import DesiredSets
from globalmanager.edge.fold import StatusFold
from globalmanager.edge.identity import Authenticator, TokenAuthenticator
from globalmanager.edge.link import LinkTiming
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.server import EdgeServer
from globalmanager.edge.sessions import Sessions
from globalmanager.edge.upstream import Inbox
from globalmanager.engine.epoch import claim_epoch
from globalmanager.engine.loop import Engine, EngineSettings, served_types
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.rootkey import get_root_key
from globalmanager.kinds import KINDS
from globalmanager.kube.client import ClientSettings, KubeClient
from globalmanager.kube.errors import NotFound
from globalmanager.model import Event, Severity, WorkerSettings
from globalmanager.rest.api import Api
from globalmanager.rest.server import RestServer
from globalmanager.settings import Settings
from globalmanager.startup import Startup

log = get_logger(__name__)

VERSION: Final = "0.1.0"


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set.

    Raises: SettingsError, ApiError (the API refuses what cannot be done without), OSError (an
        address cannot be listened on)
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    metrics = EngineMetrics(registry)
    authenticator = _authenticator(settings)
    client = await KubeClient.from_kubeconfig(
        Path(settings.kubeconfig) if settings.kubeconfig else None,
        ClientSettings(qps=settings.qps, burst=settings.burst),
        on_request=metrics.observe_request,
    )
    async with client, asyncio.TaskGroup() as tasks:
        manager = Manager(settings, client, authenticator, registry, metrics)
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
        authenticator: Authenticator,
        registry: CollectorRegistry,
        metrics: EngineMetrics,
    ) -> None:
        self._settings = settings
        self._client = client
        self._authenticator = authenticator
        self._metrics = metrics
        self._edge_metrics = EdgeMetrics(registry)
        self._startup = Startup()
        self._epoch = 0
        self._desired = DesiredSets()
        self._inbox = Inbox(
            binding_of=self._desired.task_of,
            fold_and_write=self._startup.fold_and_write,
            metrics=self._edge_metrics,
        )
        self._sessions = Sessions(
            desired=self._desired,
            inbox=self._inbox,
            epoch=lambda: self._epoch,
            contact_changed=self._startup.contact_changed,
            duplicate_node=self._duplicate_node,
            metrics=self._edge_metrics,
            timing=LinkTiming(session=settings.timing),
        )
        self._api = Api(
            cluster=self._startup,
            sessions=self._sessions,
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
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(engine.run(), name="engine")
                tasks.create_task(self._inbox.run(), name="inbox")
                await self._serve_edges()

    async def _start_engine(self) -> Engine:
        """Raises: ApiError when the API refuses; while it is away, this waits"""
        namespace = self._settings.system_namespace
        identity = f"{socket.gethostname()}-{os.getpid()}"
        problem = self._startup.waits_for_api
        root_key = await get_root_key(self._client, namespace=namespace, on_problem=problem)
        self._epoch = await claim_epoch(
            self._client, namespace=namespace, identity=identity, on_problem=problem
        )
        engine = Engine(
            client=self._client,
            kinds=KINDS,
            sink=self._desired,
            contacts=self._sessions,
            workers=_worker_settings(self._settings, root_key),
            settings=EngineSettings(
                namespace=self._settings.namespace,
                groups=self._settings.groups,
                workers=self._settings.workers,
                stale_after_s=self._settings.stale_after_s,
            ),
            metrics=self._metrics,
        )
        self._startup.joined(
            engine,
            StatusFold(
                find=engine.find,
                write=engine.status_writer.write,
                is_gone=lambda error: isinstance(error, NotFound),
            ),
        )
        return engine

    async def _serve_edges(self) -> None:
        address = split_address(self._settings.edge_address, "setting edgeAddress")
        per_s = self._settings.admissions_per_s
        server = EdgeServer(
            *address,
            sessions=self._sessions,
            authenticator=self._authenticator,
            not_ready=self._startup.edges_must_wait,
            metrics=self._edge_metrics,
            limits=AdmissionLimits(per_s=per_s, burst=max(1, round(2 * per_s))),
        )
        async with server:
            await asyncio.Event().wait()  # until cancelled

    def _duplicate_node(self, node: NodeName) -> None:
        """Two LocalControllers use one name: tell who looks at the Node."""
        message = (
            f"two LocalControllers connect as {node} in turn; give each node a name and a token "
            "of its own"
        )
        self._startup.record_on_node(node, Event(Severity.WARNING, "DuplicateNode", message))


def _authenticator(settings: Settings) -> Authenticator:
    if not settings.edge_token_file:
        raise SettingsError(
            "flag --edge-token-file",
            "is required with --edge-auth token: a file of lines `<node> <sha256 of its token>`",
        )
    return TokenAuthenticator(Path(settings.edge_token_file))


def _worker_settings(settings: Settings, root_key: bytes) -> WorkerSettings:
    return WorkerSettings(
        root_key=root_key,
        framework_images=settings.framework_images,
        storage_initializer_image=settings.storage_initializer_image,
        worker_api_port=settings.worker_api_port,
        contact_grace_s=settings.contact_grace_s,
    )
