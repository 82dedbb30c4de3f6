"""The one place that builds the GlobalManager's parts and joins their tasks. Called by `__main__`.

Each part is given finished parts only; where news flows back to a part that was built later, that
part has subscribed. The constructor of Manager shows the order:

    fence, contacts, desired sets      what the others share: no task, no request
    engine                             plans; reads contacts, writes the desired sets
    inbox, sessions                    reports go into the engine's status writer
    membership                         elector, presence and roster among the other replicas
    REST, edge server                  what others connect to

At start REST answers first, so that /readyz can say what the start waits for; edges are admitted
last, when every job resource has been looked at.
"""

import asyncio
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from common.errors import SettingsError
from common.settings import split_address
from common.tasks import TaskGroup
from globalmanager.cache.informer import InformerSettings
from globalmanager.contract import WorkerSettings
from globalmanager.edge.door.configuration import Admittance
from globalmanager.edge.door.server import EdgeServer
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.downstream import DesiredSets
from globalmanager.edge.sessions.driver import DriverTiming
from globalmanager.edge.sessions.fold import StatusFold
from globalmanager.edge.sessions.inbox import Inbox
from globalmanager.edge.sessions.registry import Sessions
from globalmanager.engine.health import Health
from globalmanager.engine.loop import Engine, EngineSettings
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.rootkey import get_root_key
from globalmanager.ha.contacts import Contacts
from globalmanager.ha.elector import Identity, LeaseTiming
from globalmanager.ha.fence import Fence
from globalmanager.ha.membership import Membership
from globalmanager.kinds import KINDS
from globalmanager.kube.client import ClientSettings, KubeClient
from globalmanager.kube.errors import NotFound
from globalmanager.kube.tokenreviews import TokenReviews
from globalmanager.rest.api import Api
from globalmanager.rest.server import RestServer
from globalmanager.settings import Settings

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
    """All parts of one GlobalManager. Raises: SettingsError"""

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
        edge_metrics = EdgeMetrics(registry)
        fence = Fence()
        contacts = Contacts()
        desired = DesiredSets()
        self._engine = Engine(
            client=client,
            kinds=KINDS,
            sink=desired,
            contacts=contacts,
            fence=fence,
            worker_settings=_worker_settings(settings),
            settings=EngineSettings(
                namespace=settings.namespace,
                groups=settings.groups,
                reconcilers=settings.workers,
                stale_after_s=settings.stale_after_s,
                informer=InformerSettings(watch_s=settings.watch_s),
            ),
            metrics=metrics,
        )
        self._inbox = Inbox(
            binding_of=desired.binding_of,
            fold_and_write=StatusFold(
                find=self._engine.find,
                update=self._engine.status_writer.update,
                is_gone=lambda error: isinstance(error, NotFound),
            ),
            metrics=edge_metrics,
        )
        self._membership = Membership(
            client,
            namespace=settings.system_namespace,
            identity=Identity.of_this_process(settings.replica_name),
            timing=lease_timing(settings),
            fence=fence,
            contacts=contacts,
        )
        elector = self._membership.elector
        sessions = Sessions(
            desired=desired,
            inbox=self._inbox,
            contacts=contacts,
            epoch=lambda: elector.epoch,
            metrics=edge_metrics,
            timing=DriverTiming(session=settings.timing),
        )
        api = Api(
            cache=self._engine,
            sessions=sessions,
            contacts=contacts,
            types=self._engine.types,
            is_populated=self._engine.initially_reconciled.is_set,
            health=self.health,
            registry=registry,
            version=VERSION,
        )
        self._rest = RestServer(
            *split_address(settings.http_address, "setting httpAddress"), routes=api.routes
        )
        self._edge = EdgeServer(
            *split_address(settings.edge_address, "setting edgeAddress"),
            sessions=sessions,
            authenticator=admittance.authenticator(TokenReviews(client)),
            is_ready=self._can_serve_edges,
            metrics=edge_metrics,
            limits=admittance.limits,
            tls=admittance.tls,
            review_s=settings.edge_review_s,
        )
        elector.subscribe(metrics.leading.set)
        elector.subscribe(self._engine.leadership_changed)
        metrics.epoch.set_function(lambda: elector.epoch)

    async def run(self) -> None:
        """Until cancelled."""
        async with self._rest:
            root_key = await get_root_key(
                self._client,
                namespace=self._settings.system_namespace,
                on_problem=self._engine.waits_for_api,
            )
            async with TaskGroup() as tasks:
                tasks.create_task(self._engine.run(root_key), name="engine")
                tasks.create_task(self._inbox.run(), name="inbox")
                tasks.create_task(self._membership.roster.run(), name="other replicas")
                await self._serve(tasks)

    async def _serve(self, tasks: TaskGroup) -> None:
        """Serve edges and stand for election, until cancelled.

        Then the Lease is given up first; the edges are told to go while the inbox still takes in
        what they have sent; and last the other replicas forget this one.
        """
        presence = tasks.create_task(self._membership.presence.run(), name="presence")
        try:
            async with self._edge:
                elector = tasks.create_task(self._membership.elector.run(), name="elector")
                try:
                    await asyncio.Event().wait()
                finally:
                    await end(elector)
        finally:
            await end(presence)

    def health(self) -> Health:
        """Answer of /readyz: of the engine, and of what is known of the other replicas."""
        health = self._engine.health()
        if self._engine.is_starting:
            return health  # the other replicas are not asked for yet
        unknown, complaints = self._membership.unknown(), self._membership.complaints()
        return Health(health.ready and not unknown, (*unknown, *health.reasons, *complaints))

    def _can_serve_edges(self) -> bool:
        """Whether it is known what each node must hold, and which other replicas serve nodes."""
        return self._engine.initially_reconciled.is_set() and not self._membership.unknown()


async def end(task: asyncio.Task[None]) -> None:
    """Cancel, and wait for the task's clean-up, which takes bounded time."""
    task.cancel()
    await asyncio.wait([task])


# ---- each part's slice of the settings ----


def lease_timing(settings: Settings) -> LeaseTiming:
    """Raises: SettingsError"""
    try:
        return LeaseTiming(
            duration_s=settings.lease_duration_s,
            renew_deadline_s=settings.lease_renew_deadline_s,
            retry_s=settings.lease_retry_s,
        )
    except ValueError as error:
        raise SettingsError(
            "flags --lease-duration-s, --lease-renew-deadline-s, --lease-retry-s", str(error)
        ) from error


def _worker_settings(settings: Settings) -> WorkerSettings:
    return WorkerSettings(
        framework_images=settings.framework_images,
        storage_initializer_image=settings.storage_initializer_image,
        worker_api_port=settings.worker_api_port,
        contact_grace_s=settings.contact_grace_s,
    )
