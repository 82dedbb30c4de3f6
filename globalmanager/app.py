"""Builds all parts of the GlobalManager and runs their tasks. Called by `__main__`.

The constructor of a part gets only parts that exist already. Some parts need news from a part that
is built later. Such a part subscribes to the later part. The constructor of Manager shows the
order:

    fence, contacts, desired sets      state that the other parts share; no task, no request
    engine                             plans; reads contacts, writes the desired sets
    inbox, sessions                    pass reports on to the engine's status writer
    membership                         elector, presence and roster: they deal with other replicas
    REST, edge server                  the two ports that clients and edges connect to

At the start REST answers first, so that /readyz can say what the start waits for. The edge server
admits edges last, when the process knows the desired set of every node.
"""

import asyncio
import math
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from common.errors import SettingsError
from common.settings import is_loopback, split_address
from common.tasks import TaskGroup
from globalmanager.cache.health import Health
from globalmanager.cache.informer import InformerSettings
from globalmanager.contract import WorkerSettings
from globalmanager.edge.door.configuration import DoorConfiguration
from globalmanager.edge.door.server import EdgeServer
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.downstream import DesiredSets
from globalmanager.edge.sessions.driver import DriverTiming
from globalmanager.edge.sessions.fold import StatusFold
from globalmanager.edge.sessions.inbox import Inbox
from globalmanager.edge.sessions.left_out import LeftOutTasks
from globalmanager.edge.sessions.registry import Sessions
from globalmanager.edge.sessions.relay import Relays
from globalmanager.engine.loop import Engine, EngineSettings
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.garbage import collect_when_quiet
from globalmanager.ha.contacts import Contacts
from globalmanager.ha.elector import Identity, LeaseTiming
from globalmanager.ha.fence import Fence
from globalmanager.ha.membership import Membership
from globalmanager.kinds import KINDS
from globalmanager.kube.client import KubeClient
from globalmanager.kube.errors import NotFound, TooLarge
from globalmanager.kube.rootkey import get_root_key
from globalmanager.kube.sender import ClientSettings
from globalmanager.kube.tokenreviews import TokenReviews
from globalmanager.rest.access import Access, KubernetesAccess, OpenAccess
from globalmanager.rest.api import Api
from globalmanager.rest.metrics import RestMetrics
from globalmanager.rest.server import RestServer
from globalmanager.rules.pod_security import Level
from globalmanager.settings import Settings

VERSION: Final = "0.1.0"
_LIST_DEADLINES: Final = 3  # the deadline of a list page is this many request deadlines


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run one GlobalManager until `stop` is set.

    Raises: SettingsError; OSError when the process cannot listen on an address
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    metrics = EngineMetrics(registry)
    door = DoorConfiguration(settings)
    client = await KubeClient.from_kubeconfig(
        Path(settings.kubeconfig) if settings.kubeconfig else None,
        client_settings(settings),
        on_request=metrics.observe_request,
    )
    async with client, TaskGroup() as tasks:
        collecting = tasks.create_task(collect_when_quiet(), name="garbage")
        manager = Manager(settings, client, door, registry, metrics)
        serving = tasks.create_task(manager.run(), name="manager")
        stopping = tasks.create_task(stop.wait(), name="stop")
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        serving.cancel()
        collecting.cancel()


class Manager:
    """All parts of one GlobalManager. Raises: SettingsError"""

    def __init__(
        self,
        settings: Settings,
        client: KubeClient,
        door: DoorConfiguration,
        registry: CollectorRegistry,
        metrics: EngineMetrics,
    ) -> None:
        self._settings = settings
        self._client = client
        edge_metrics = EdgeMetrics(registry)
        fence = Fence()
        contacts = Contacts()
        desired = DesiredSets()
        desired.subscribe(lambda _node, _key, _task: client.make_way())
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
                pod_security_default=Level(settings.pod_security_default),
                informer=InformerSettings(watch_s=settings.watch_s),
            ),
            metrics=metrics,
        )
        left_out = LeftOutTasks(
            find=self._engine.find,
            record=self._engine.report_events.record,
            limits=desired.limits,
        )
        desired.subscribe_left_out(left_out.tell)
        edge_metrics.tasks_left_out.set_function(lambda: desired.left_out)
        self._inbox = Inbox(
            binding_of=desired.binding_of,
            fold_and_write=StatusFold(
                find=self._engine.find,
                update=self._engine.status_writer.update,
                is_gone=lambda error: isinstance(error, NotFound),
                is_too_large=lambda error: isinstance(error, TooLarge),
                record=self._engine.report_events.record,
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
        relays = Relays(
            desired=desired,
            resolve=self._engine.cluster_ip,
            cluster_domain=settings.cluster_domain,
            metrics=edge_metrics,
            timing=settings.timing,
        )
        api = Api(
            access=access_of(settings, client),
            cache=self._engine,
            sessions=sessions,
            contacts=contacts,
            types=self._engine.types,
            is_populated=self._engine.initially_assigned.is_set,
            health=self.health,
            registry=registry,
            version=VERSION,
        )
        self._rest = RestServer(
            *split_address(settings.http_address, "setting httpAddress"),
            routes=api.routes,
            metrics=RestMetrics(registry),
        )
        self._edge = EdgeServer(
            *split_address(settings.edge_address, "setting edgeAddress"),
            sessions=sessions,
            relays=relays,
            authenticator=door.authenticator(TokenReviews(client)),
            is_ready=self._can_serve_edges,
            metrics=edge_metrics,
            limits=door.limits,
            tls=door.tls,
            review_s=settings.edge_review_s,
        )
        elector.subscribe(metrics.leading.set)
        elector.subscribe(self._engine.leadership_changed)
        metrics.epoch.set_function(lambda: elector.epoch)

    async def run(self) -> None:
        """Run all parts until this task is cancelled."""
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
        """Serve edges and take part in the election of the leader until this task is cancelled.

        Then the parts stop in this order. First the elector releases the Lease. Next the edge
        server closes the sessions, and the inbox still writes the reports that have arrived. Last,
        presence deletes the objects from which the other replicas know this replica.
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
        """The answer of /readyz: the engine's health, and the problems with other replicas."""
        health = self._engine.health()
        if self._engine.is_starting:
            return health  # the roster does not run yet, so this process knows no other replica
        unknown, complaints = self._membership.unknown(), self._membership.complaints()
        return Health(health.ready and not unknown, (*unknown, *health.reasons, *complaints))

    def _can_serve_edges(self) -> bool:
        """Whether this replica knows the desired set of every node, and the sessions of the other
        replicas.
        """
        return self._engine.initially_assigned.is_set() and not self._membership.unknown()


async def end(task: asyncio.Task[None]) -> None:
    """Cancel the task and wait until the task has cleaned up. Each clean-up has a time limit."""
    task.cancel()
    await asyncio.wait([task])


# ---- each part's slice of the settings ----


def access_of(settings: Settings, client: KubeClient) -> Access:
    """Who may read the REST API. Raises: SettingsError"""
    if settings.http_auth == "kubernetes":
        # with a rate of its own, so that callers of REST take nothing from the engine
        return KubernetesAccess(TokenReviews(client.apart(client_settings(settings))))
    host, _ = split_address(settings.http_address, "setting httpAddress")
    if not is_loopback(host):
        raise SettingsError(
            "setting httpAuth",
            f"none is for a loopback address, not for {host}: everybody who reaches the port could "
            "read all jobs. Use kubernetes",
        )
    return OpenAccess()


def client_settings(settings: Settings) -> ClientSettings:
    """The settings of the Kubernetes client. Raises: SettingsError"""
    is_positive = 0 < settings.qps < math.inf and min(settings.burst, settings.plan_requests) >= 1
    if not is_positive:
        raise SettingsError(
            "flags --qps, --burst, --plan-requests",
            f"must be above 0, not {settings.qps:g}, {settings.burst}, {settings.plan_requests}",
        )
    return ClientSettings(
        qps=settings.qps,
        burst=settings.burst,
        plan_requests=settings.plan_requests,
        deadline_s=settings.request_deadline_s,
        list_deadline_s=_LIST_DEADLINES * settings.request_deadline_s,
    )


def lease_timing(settings: Settings) -> LeaseTiming:
    """The times of the election, from the settings. Raises: SettingsError"""
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
        node_path_prefixes=settings.node_path_prefixes,
        worker_api_port=settings.worker_api_port,
        cluster_domain=settings.cluster_domain,
        gang_scheduler_name=settings.gang_scheduler_name,
        contact_grace_s=settings.contact_grace_s,
    )
