"""The parts of one GlobalManager that need no port: engine, sessions, inbox and membership.

`app` builds a Core, adds the two ports to it, and runs both. The simulation (docs/simulation.md)
builds the same Core, with a network and with a clock of its own.

The constructor of a part gets only parts that exist already. Some parts need news from a part that
is built later. Such a part subscribes to the later part. The constructor of Core shows the order:

    fence, contacts, desired sets      state that the other parts share; no task, no request
    engine                             plans; reads contacts, writes the desired sets
    membership                         elector, presence and roster: they deal with other replicas
    inbox, sessions                    pass reports on to the engine's status writer
    rebalancer                         sends edges to replicas with fewer sessions
"""

import msgspec

from common.clock import SYSTEM_CLOCK, Clock
from common.tasks import TaskGroup
from edgeai.api.resources import NODES, ObjectRef
from edgeai.errors import SettingsError
from edgeai.kube.client import KubeClient
from globalmanager.cache.health import Health
from globalmanager.cache.informer import InformerSettings
from globalmanager.contract import WorkerSettings
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.desired_sets import DesiredSets
from globalmanager.edge.sessions.driver import DriverTiming
from globalmanager.edge.sessions.inbox import Inbox
from globalmanager.edge.sessions.left_out import LeftOutTasks
from globalmanager.edge.sessions.rebalancer import Rebalancer
from globalmanager.edge.sessions.registry import Sessions
from globalmanager.edge.sessions.report_writer import JobReportWriter
from globalmanager.engine.build import build_engine
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.pod_security import Level
from globalmanager.engine.settings import EngineSettings
from globalmanager.ha.contacts import Contacts
from globalmanager.ha.elector import Identity, LeaseTiming
from globalmanager.ha.fence import Fence
from globalmanager.ha.membership import Membership
from globalmanager.kinds import KINDS
from globalmanager.kinds.training.edge_placement import is_edge
from globalmanager.settings import Settings
from globalmanager.traces import NO_TRACES, TaskTraces


class Core:
    """Args: clock: as fast as that of the event loop. Raises: SettingsError"""

    def __init__(
        self,
        settings: Settings,
        client: KubeClient,
        *,
        identity: Identity,
        metrics: EngineMetrics,
        edge_metrics: EdgeMetrics,
        clock: Clock = SYSTEM_CLOCK,
        traces: TaskTraces = NO_TRACES,
    ) -> None:
        self._edge_url = settings.edge_url
        self.fence = fence = Fence(clock)
        self.contacts = contacts = Contacts(clock)
        self.desired = desired = DesiredSets()
        desired.subscribe(lambda _node, _key, _task: client.make_way())
        self.engine = build_engine(
            client,
            KINDS,
            sink=desired,
            contacts=contacts,
            fence=fence,
            worker_settings=msgspec.convert(settings, WorkerSettings, from_attributes=True),
            settings=_engine_settings(settings),
            metrics=metrics,
            clock=clock,
            traces=traces,
        )
        self.membership = Membership(
            client,
            namespace=settings.system_namespace,
            identity=identity,
            timing=lease_timing(settings),
            fence=fence,
            contacts=contacts,
            edge_side=self,
            clock=clock,
        )
        self._build_edge_side(settings, edge_metrics, clock, traces)
        self._show(metrics, edge_metrics)
        self.membership.elector.subscribe(self.engine.leadership_changed)

    def _build_edge_side(
        self, settings: Settings, metrics: EdgeMetrics, clock: Clock, traces: TaskTraces
    ) -> None:
        """The parts that pass reports on to the engine's status writer, and spread the sessions."""
        contacts, desired = self.contacts, self.desired
        recorder = self.engine.writers.report_events
        left_out = LeftOutTasks(jobs=self.engine.jobs, recorder=recorder, limits=desired.limits)
        desired.subscribe_left_out(left_out.tell)
        self.inbox = Inbox(
            desired=desired,
            writer=JobReportWriter(
                jobs=self.engine.jobs,
                writer=self.engine.writers.status_writer,
                recorder=recorder,
                clock=clock,
            ),
            metrics=metrics,
            clock=clock,
            traces=traces,
        )
        self.sessions = Sessions(
            desired=desired,
            inbox=self.inbox,
            contacts=contacts,
            elector=self.membership.elector,
            metrics=metrics,
            timing=DriverTiming(session=settings.timing),
            clock=clock,
            traces=traces,
        )
        self.rebalancer = Rebalancer(
            self.sessions,
            contacts,
            roster=self.membership.roster,
            metrics=metrics,
            clock=clock,
        )

    def _show(self, metrics: EngineMetrics, edge_metrics: EdgeMetrics) -> None:
        desired, contacts, elector = self.desired, self.contacts, self.membership.elector
        edge_metrics.tasks_left_out.set_function(lambda: desired.left_out)
        nodes = edge_metrics.nodes
        nodes.labels("lost").set_function(self._count_lost)
        nodes.labels("open").set_function(
            lambda: len(desired.nodes) - len(contacts.without_session(desired.nodes))
        )
        elector.subscribe(metrics.leading.set)
        metrics.epoch.set_function(lambda: elector.epoch)

    def _count_lost(self) -> int:
        """How many edge nodes must hold a task and have no session at any replica.

        A training job has a task for each node with one of its pods, also in the cloud. So a node
        counts when it has the label of the edge, or had a session.
        """
        contacts, jobs = self.contacts.by_node(), self.engine.jobs
        return sum(
            name in contacts or is_edge(jobs.get(ObjectRef(NODES, "", name)))
            for name in self.contacts.without_session(self.desired.nodes)
        )

    def start(self, tasks: TaskGroup, root_key: bytes) -> None:
        """Run engine, inbox, roster and rebalancer in `tasks`; presence and elector end in order.

        Args: root_key: see `rootkey`
        """
        tasks.create_task(self.engine.run(root_key), name="engine")
        tasks.create_task(self.inbox.run(), name="inbox")
        tasks.create_task(self.membership.roster.run(), name="other replicas")
        tasks.create_task(self.rebalancer.run(), name="rebalancer")

    def health(self) -> Health:
        """The answer of /readyz: the engine's health, and the problems with other replicas."""
        health = self.engine.health()
        if self.engine.is_starting:
            return health  # the roster does not run yet, so this process knows no other replica
        unknown, complaints = self.membership.unknown(), self.membership.complaints()
        return Health(health.ready and not unknown, (*unknown, *health.reasons, *complaints))

    def is_populated(self) -> bool:
        """Whether the caches have every job that existed at the start."""
        return self.engine.initially_assigned.is_set()

    def edge_url(self) -> str | None:
        """This replica's own URL for edges, or ""; None while it serves no edges."""
        return self._edge_url if self.can_open_sessions() else None

    def can_serve_edges(self) -> bool:
        """Whether this replica knows each node's desired set, and the other replicas' sessions."""
        return self.is_populated() and not self.membership.unknown()

    def can_open_sessions(self) -> bool:
        """Whether it also knows the newest tasks: a node drops those that its replica lacks."""
        return self.can_serve_edges() and self.membership.roster.is_current()


# ---- slices of the settings ----


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


def _engine_settings(settings: Settings) -> EngineSettings:
    return EngineSettings(
        namespace=settings.namespace,
        groups=settings.groups,
        reconcilers=settings.workers,
        stale_after_s=settings.stale_after_s,
        pod_security_default=Level(settings.pod_security_default),
        informer=InformerSettings(watch_s=settings.watch_s),
    )
