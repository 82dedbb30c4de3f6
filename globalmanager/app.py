"""Builds all parts of the GlobalManager and runs their tasks.

`core` has the parts that need no port. This module adds the ports of REST and edges.

At the start REST answers first, so that /readyz can say what the start waits for. The edge server
admits edges last, when the process knows the desired set of every node.
"""

import asyncio
import math
from pathlib import Path
from typing import Final

import msgspec

from common.settings import split_address
from common.tasks import TaskGroup
from common.version import VERSION
from edgeai.addresses import is_loopback
from edgeai.errors import SettingsError
from edgeai.kube.client import KubeClient
from edgeai.kube.sender import ClientSettings
from globalmanager.core import Core
from globalmanager.edge.door.configuration import DoorConfiguration
from globalmanager.edge.door.server import EdgeServer
from globalmanager.edge.sessions.relay import Relays
from globalmanager.garbage import collect_when_quiet
from globalmanager.ha.elector import Identity
from globalmanager.kinds import KINDS
from globalmanager.metrics import Metrics
from globalmanager.rest.access import Access, KubernetesAccess, OpenAccess
from globalmanager.rest.api import Api
from globalmanager.rest.console.actions import CallersApi
from globalmanager.rest.console.board import Board
from globalmanager.rest.console.events import MAX_BYTES
from globalmanager.rest.console.handlers import Console
from globalmanager.rest.console.live import Live
from globalmanager.rest.console.login import Logins
from globalmanager.rest.console.past import Past
from globalmanager.rest.console.proxy import ProxyLogin
from globalmanager.rest.console.recent import Recent
from globalmanager.rest.console.visits import Visits
from globalmanager.rest.server import RestServer
from globalmanager.rootkey import get_root_key
from globalmanager.settings import Settings
from globalmanager.tokenreviews import TokenReviews
from globalmanager.traces import NO_TRACES, TaskSpans, TaskTraces

MAX_JOB_METRICS: Final = 20_000  # 5 MB of text at each scrape, in half a second
_LIST_DEADLINES: Final = 3  # the deadline of a list page is this many request deadlines


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Run one GlobalManager until `stop` is set.

    Raises: SettingsError; OSError when the process cannot listen on an address
    """
    metrics = Metrics()
    door = DoorConfiguration(settings)
    traces = traces_of(settings)
    client = await KubeClient.from_kubeconfig(
        Path(settings.kubeconfig) if settings.kubeconfig else None,
        client_settings(settings),
        on_request=metrics.engine.observe_request,
    )
    callers = client.for_callers(
        msgspec.structs.replace(client_settings(settings), page_bytes=MAX_BYTES)
    )
    async with client, callers, TaskGroup() as tasks:
        collecting = tasks.create_task(collect_when_quiet(), name="garbage")
        manager = Manager(settings, client, callers, door, metrics, traces)
        serving = tasks.create_task(manager.run(), name="manager")
        stopping = tasks.create_task(stop.wait(), name="stop")
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        serving.cancel()
        collecting.cancel()
    await traces.close()


class Manager:
    """All parts of one GlobalManager.

    Args: callers: a client without credentials, for requests with a caller's token

    Raises: SettingsError
    """

    def __init__(
        self,
        settings: Settings,
        client: KubeClient,
        callers: KubeClient,
        door: DoorConfiguration,
        metrics: Metrics,
        traces: TaskTraces = NO_TRACES,
    ) -> None:
        self._settings = settings
        self._client = client
        self._core = Core(
            settings,
            client,
            identity=Identity.of_this_process(settings.replica_name),
            metrics=metrics.engine,
            edge_metrics=metrics.edge,
            traces=traces,
        )
        jobs = self._core.engine.jobs
        relays = Relays(
            desired=self._core.desired,
            services=jobs,
            cluster_domain=settings.cluster_domain,
            metrics=metrics.edge,
            timing=settings.timing,
        )
        # with a rate of its own, so that callers take nothing from the engine
        reviews = KubernetesAccess(TokenReviews(client.apart(client_settings(settings))))
        access = access_of(settings, reviews)
        api = self._api(access, metrics)
        metrics.job_values.show(jobs, limit=job_metrics_of(settings))
        self._logins, self._live = Logins(), Live()
        self._recent = Recent(jobs, jobs.types)
        console = self._console(access, reviews, callers, relays)
        self._rest = RestServer(
            *split_address(settings.http_address, "setting httpAddress"),
            routes=(*api.routes, *(console.routes if settings.console == "on" else ())),
            metrics=metrics.rest,
        )
        self._edge = EdgeServer(
            *split_address(settings.edge_address, "setting edgeAddress"),
            sessions=self._core.sessions,
            relays=relays,
            authenticator=door.authenticator(TokenReviews(client)),
            replica=self._core,
            metrics=metrics.edge,
            limits=door.limits,
            tls=door.tls,
            review_s=settings.edge_review_s,
        )

    def _api(self, access: Access, metrics: Metrics) -> Api:
        jobs = self._core.engine.jobs
        return Api(
            access=access,
            cache=jobs,
            sessions=self._core.sessions,
            contacts=self._core.contacts,
            types=jobs.types,
            replica=self._core,
            registry=metrics.registry,
            version=VERSION,
        )

    def _console(
        self, access: Access, reviews: KubernetesAccess, callers: KubeClient, relays: Relays
    ) -> Console:
        """Raises: SettingsError"""
        jobs = self._core.engine.jobs
        board = Board(
            cache=jobs,
            sessions=self._core.sessions,
            relays=relays,
            contacts=self._core.contacts,
            types=jobs.types,
        )
        visits = Visits(
            access=access,
            reviews=reviews,
            logins=self._logins,
            proxy=ProxyLogin(self._settings.console_token_header),
            board=board,
            kinds=KINDS,
            replica=self._core,
        )
        return Console(
            visits,
            live=self._live,
            callers_api=CallersApi(callers),
            recent=self._recent,
            past=past_of(self._settings),
            version=VERSION,
        )

    async def run(self) -> None:
        async with self._rest:
            root_key = await get_root_key(
                self._client,
                namespace=self._settings.system_namespace,
                on_problem=self._core.engine.waits_for_api,
            )
            self._logins.use_key(root_key)
            async with TaskGroup() as tasks:
                self._core.start(tasks, root_key)
                tasks.create_task(self._live.run(), name="open pages of the console")
                tasks.create_task(self._recent.run(), name="curves of the console")
                await self._serve(tasks)

    async def _serve(self, tasks: TaskGroup) -> None:
        """Serve edges and take part in the election of the leader until this task is cancelled.

        Then the parts stop in this order. First the elector releases the Lease. Next the edge
        server closes the sessions, and the inbox still writes the reports that have arrived. Last,
        presence deletes the objects from which the other replicas know this replica.
        """
        presence = tasks.create_task(self._core.membership.presence.run(), name="presence")
        try:
            async with self._edge:
                elector = tasks.create_task(self._core.membership.elector.run(), name="elector")
                try:
                    await asyncio.Event().wait()
                finally:
                    await end(elector)
        finally:
            await end(presence)


async def end(task: asyncio.Task[None]) -> None:
    """Cancel the task and wait until the task has cleaned up. Each clean-up has a time limit."""
    task.cancel()
    await asyncio.wait([task])


# ---- each part's slice of the settings ----


def traces_of(settings: Settings) -> TaskTraces:
    """Raises: SettingsError"""
    if not settings.traces_endpoint:
        return NO_TRACES
    instance = Identity.of_this_process(settings.replica_name).replica
    return TaskSpans(settings.traces_endpoint, instance)


def past_of(settings: Settings) -> Past | None:
    """The client of the Prometheus with curves of jobs; None: none. Raises: SettingsError"""
    if not settings.console_prometheus_url:
        return None
    if not settings.job_metrics:
        problem = "needs --job-metrics above 0: else no series has the metrics of jobs"
        raise SettingsError("flag --console-prometheus-url", problem)
    return Past(settings.console_prometheus_url)


def job_metrics_of(settings: Settings) -> int:
    """Raises: SettingsError"""
    if not 0 <= settings.job_metrics <= MAX_JOB_METRICS:
        problem = f"must be from 0 to {MAX_JOB_METRICS}, not {settings.job_metrics}"
        raise SettingsError("flag --job-metrics", problem)
    return settings.job_metrics


def access_of(settings: Settings, reviews: KubernetesAccess) -> Access:
    """The check of the callers of the REST API. Raises: SettingsError"""
    if settings.http_auth == "kubernetes":
        return reviews
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
