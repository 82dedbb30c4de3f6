"""The engine turns every change into a key, and for every key it observes, plans and applies.

Every replica has one engine. The engine of every replica computes the assignments of nodes. It does
so on a path of its own (assign) that waits for no plan. Only the leader's engine plans.

The edge server and REST ask the engine for objects, and the edge server writes .status through the
engine. One Engine serves all kinds. The engine keeps no state that it could not read again after a
restart. A fault of one resource does not affect other resources: an exception of a kind or of the
API leads only to a backoff of this resource's key.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry

from common.tasks import TaskGroup
from edgeai.ids import NodeName, TaskKey, Uid
from globalmanager.cache.health import Health
from globalmanager.cache.informers import Informers
from globalmanager.cache.live import Live
from globalmanager.cache.pods import FORMS
from globalmanager.cache.specs import LargeSpecs
from globalmanager.cache.store import controller_of
from globalmanager.contract import (
    NAMESPACES,
    NODES,
    POD_CONTROLLERS,
    SERVICES,
    Event,
    Kind,
    Object,
    ObjectRef,
    Observed,
    ResourceType,
    Served,
    Severity,
    WorkerSettings,
    ref_of,
)
from globalmanager.engine.apply import Applier
from globalmanager.engine.assign import Assigner
from globalmanager.engine.caches import Caches
from globalmanager.engine.changes import ChangeHandler
from globalmanager.engine.drift import Drift
from globalmanager.engine.events import Recorder
from globalmanager.engine.executions import Executions
from globalmanager.engine.fan_out import FanOut
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.observe import Observer, Owned
from globalmanager.engine.owners import Owners
from globalmanager.engine.pod_admission import PodAdmission
from globalmanager.engine.ports import AssignmentSink
from globalmanager.engine.queue import WorkQueue
from globalmanager.engine.reconcile import JobReconciler
from globalmanager.engine.reconcilers import Reconcilers
from globalmanager.engine.settings import EngineSettings
from globalmanager.engine.status import StatusWriter, status_of
from globalmanager.ha.clock import Clocks
from globalmanager.ha.contacts import Contacts
from globalmanager.ha.fence import Fence
from globalmanager.kube.client import KubeClient
from globalmanager.kube.objects import Unreadable
from globalmanager.kube.rate import Share
from globalmanager.traces import TaskTraces

STARTING: Final = "starting"
_JOBS_PER_SLICE: Final = 1  # of a fan-out; a plan takes 1 to 2 ms


class Engine:
    """Reconciles all resources of `kinds`.

    Args:
        sink: gets the assignments of each node
        contacts: knows which nodes have a session
        worker_settings: settings that the kinds get. `run` adds the root key
        fence: open while this replica leads. None means that there is one replica, which always
            leads
        metrics: the metrics in the registry that /metrics serves
        clocks: the time of day for plans, and the age of changes that somebody else made
        traces: None when no traces are sent
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        kinds: Sequence[Kind],
        sink: AssignmentSink,
        contacts: Contacts,
        worker_settings: WorkerSettings,
        settings: EngineSettings | None = None,
        fence: Fence | None = None,
        metrics: EngineMetrics | None = None,
        clocks: Clocks = Clocks(),  # noqa: B008 - immutable
        traces: TaskTraces | None = None,
    ) -> None:
        self._settings = settings or EngineSettings()
        self._fence = fence
        self._metrics = metrics or EngineMetrics(CollectorRegistry())
        self._waits_for = STARTING  # why the engine has not begun; "" after `run`
        needed = [kind.under(worker_settings) for kind in kinds]
        self._kinds = served_types(needed, self._settings.groups)
        client = client.reading({**FORMS, **dict.fromkeys(self._kinds, LargeSpecs())})
        self._queue: WorkQueue[ObjectRef] = WorkQueue(rest_s=self._settings.rest_s)
        self._fan_out = FanOut(
            self._queue, jobs_per_slice=_JOBS_PER_SLICE, processor=clocks.processor
        )
        self._informers = Informers(
            client,
            namespace=self._settings.namespace,
            owners=(*self._kinds, *POD_CONTROLLERS, *POD_CONTROLLERS.values()),
            settings=self._settings.informer,
            on_change=lambda *change: self._changes.changed(*change),
            on_settled=self._settled,
            on_open=self._metrics.watch,
            on_set_aside=self._tell_set_aside,
            clock=clocks.elapsed,
        )
        self._caches = Caches(self._informers, self._kinds)
        self._observer = Observer(
            self._kinds,
            all_of=self._caches.all_of,
            children=self._caches.children,
            contacts=contacts,
            settings=worker_settings,
            is_absent=self._caches.lacks_children,
        )
        self._assigner = Assigner(
            self._kinds,
            self._observer,
            sink,
            can_observe=self._caches.can_observe,
            is_listed=self._caches.is_listed,
            metrics=self._metrics,
            traces=traces,
            processor=clocks.processor,
        )
        self.initially_assigned = self._assigner.initially_assigned
        """Set when the sink has the assignments of every job resource that existed at the start.
        Before, the edge server must admit no session, because it does not know what a node must
        hold."""
        self._build_writers(client, clocks)
        self._jobs = JobReconciler(
            self._kinds,
            caches=self._caches,
            observer=self._observer,
            applier=self._applier,
            admission=self._admission,
            executions=self._executions,
            recorder=self.recorder,
            exists=lambda uid: self.by_uid(uid) is not None,
            now=clocks.utcnow,
            traces=traces,
        )
        self._changes = ChangeHandler(
            self._kinds,
            caches=self._caches,
            observer=self._observer,
            queue=self._queue,
            fan_out=self._fan_out,
            assigner=self._assigner,
            owners=self._owners,
            find=self.find,
            on_new_level=self._jobs.level_changed,
            leads=lambda: self.leads,
            metrics=self._metrics.jobs,
            counts_s=self._settings.counts_s,
        )
        self._caches.open()
        contacts.subscribe(contact=self.contact_changed, clash=self._tell_clash)

    def _build_writers(self, client: KubeClient, clocks: Clocks) -> None:
        """What writes to the API: on shares of their own, and plans only while this replica
        leads.
        """

        def leading(share: Share) -> KubeClient:
            shared = client.on_share(share)
            return shared if self._fence is None else shared.guarded(self._fence)

        recorder = partial(
            Recorder,
            now=clocks.utcnow,
            on_drop=self._metrics.events_dropped.inc,
            clock=clocks.elapsed,
        )
        plans = leading(Share.PLANS)
        self.recorder = recorder(plans)
        """Records Events about job resources and nodes."""
        self.report_events = recorder(client.on_share(Share.OTHER))
        """Records Events about reports of edges, on any replica."""
        self.status_writer = StatusWriter(client.on_share(Share.REPORTS), self._caches.all_of)
        """Writes .status by merge patch to exactly one uid. On any replica, it writes the reports
        of edges."""
        self._owners = Owners(Live(plans, self._caches.all_of), clocks.utcnow)
        self._admission = PodAdmission(
            self._caches.all_of(NAMESPACES).get,
            self._settings.pod_security_default,
            is_absent=self._caches.lacks_namespaces,
        )
        self._applier = Applier(
            Live(plans, self._caches.written_to),
            self._owners,
            Drift(clocks.elapsed),
            # A plan's status write locks the job's status. If it waited behind all writes of plans,
            # the edges' reports about the job would wait, too. So it has a share of its own.
            self.status_writer.through(leading(Share.STATUSES)),
            self.recorder,
            admit=self._admission.check,
            reason_of=lambda job, what, type_: self._kinds[job.type].event_reason(what, type_),
            on_action=self._count_action,
            on_status=self._count_outcomes,
        )
        self._executions = Executions(
            leading(Share.OTHER),
            find_pod=lambda ref: self._caches.children(ref.type).get(ref),
            on_end=self._queue.add,
            kind_of=lambda type_: self._kinds[type_].name,
            metrics=self._metrics,
        )

    def waits_for_api(self, problem: str) -> None:
        """Note for `health` why the API does not deliver the root key. `run` can begin only with
        the key.
        """
        self._waits_for = f"{STARTING}: waiting for the Kubernetes API: {problem}"

    async def run(self, root_key: bytes) -> None:
        """Run the engine until this task is cancelled.

        Args: root_key: 32 bytes, see `rootkey`
        """
        settings = msgspec.structs.replace(self._observer.settings, root_key=root_key)
        self._observer.settings = settings
        self._waits_for = ""
        self._metrics.queue_depth.set_function(lambda: len(self._queue) + len(self._fan_out))
        self._metrics.queue_oldest_s.set_function(lambda: self._queue.oldest_s)
        reconcilers = Reconcilers(
            self._queue,
            self._reconcile,
            kind_of=lambda type_: self._kinds[type_].name,
            metrics=self._metrics,
        )
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self._assigner.run(), name="assigner")
                tasks.create_task(self._fan_out.run(), name="fan-out of plans")
                self._informers.start(tasks)
                tasks.create_task(self.recorder.run(), name="events")
                tasks.create_task(self.report_events.run(), name="events of reports")
                tasks.create_task(self._executions.run(), name="executions")
                for number in range(self._settings.reconcilers):
                    tasks.create_task(reconcilers.work(), name=f"reconciler {number}")
        finally:
            self._queue.close()

    @property
    def types(self) -> Collection[ResourceType]:
        """The types of the job resources that this engine serves."""
        return self._kinds.keys()

    @property
    def is_starting(self) -> bool:
        """Whether `run` has not begun, because the API has not given the root key yet."""
        return bool(self._waits_for)

    @property
    def leads(self) -> bool:
        return self._fence is None or self._fence.is_open

    def leadership_changed(self, leads: bool) -> None:
        """When this replica begins to lead, queue every job resource for a plan. When the reign
        ends, stop the commands that run in pods.
        """
        if not leads:
            self._executions.stop()
            return
        self._owners.begin_reign()
        for type_ in self._kinds:
            for object_ in self._caches.all_of(type_).list():
                self._queue.add(ref_of(type_, object_))
        for informer in self._informers:
            for unreadable in informer.set_aside:
                self._tell_set_aside(informer.type, unreadable)

    # ---- questions and news from other parts ----------------------------------------------------

    def contact_changed(self, node: NodeName) -> None:
        """Queue all jobs with an assignment for `node`, because the node got a session or lost its
        session.
        """
        self._fan_out.changed(node, self._assigner.jobs_on(node))

    def find(self, key: TaskKey) -> Served | None:
        """The job resource of a task key, from the cache."""
        resource, _, rest = key.partition("/")
        namespace, _, name = rest.partition("/")
        for type_, kind in self._kinds.items():
            ref = ObjectRef(type_, namespace, name)
            if (
                str(type_) == resource
                and (object_ := self._caches.all_of(type_).get(ref)) is not None
            ):
                return Served(kind, ref, object_)
        return None

    def get(self, ref: ObjectRef) -> Object | None:
        """A job resource from the cache."""
        return self._caches.all_of(ref.type).get(ref)

    def by_uid(self, uid: Uid) -> Served | None:
        for type_, kind in self._kinds.items():
            for object_ in self._caches.all_of(type_).find("uid", uid):
                return Served(kind, ref_of(type_, object_), object_)
        return None

    def list(self, plural: str, namespace: str = "") -> tuple[Object, ...]:
        """Job resources by plural ("models") or by plural and group ("models.edgeai.io")."""
        return tuple(
            object_
            for type_ in self._kinds
            if plural in (type_.plural, str(type_))
            for object_ in self._caches.all_of(type_).list(namespace)
        )

    def jobs(self) -> Iterator[tuple[ResourceType, Object]]:
        """The job resources of all types."""
        return (
            (type_, each) for type_ in self._kinds for each in self._caches.all_of(type_).list()
        )

    def owned(self, ref: ObjectRef) -> Owned | None:
        """The children and pods of a job, from the caches; None when the job is gone."""
        return self._observer.owned(ref)

    def scalers(self, ref: ObjectRef) -> Mapping[ObjectRef, Object]:
        """The scalers that name a job, the oldest first."""
        return self._observer.scalers(ref)

    def cluster_ip(self, uid: Uid, namespace: str, service: str) -> str:
        """The cluster IP of a Service that is a child of the job `uid`; "": there is none."""
        found = self._caches.children(SERVICES).get(ObjectRef(SERVICES, namespace, service))
        controller = None if found is None else controller_of(found)
        if found is None or controller is None or controller.get("uid") != uid:
            return ""
        address = str(found["spec"].get("clusterIP") or "")
        return "" if address == "None" else address

    def nodes(self) -> tuple[Object, ...]:
        return self._caches.all_of(NODES).list()

    def health(self) -> Health:
        """The answer of /readyz. Before `run`, the answer says what the start waits for."""
        if self._waits_for:
            return Health(ready=False, reasons=(self._waits_for,))
        health = self._caches.health(stale_after_s=self._settings.stale_after_s)
        reasons = (*health.reasons, *self.status_writer.complaints())
        if health.ready and not self.initially_assigned.is_set():
            reasons = ("not every resource was looked at since the start", *reasons)
            return Health(ready=False, reasons=reasons)
        return Health(health.ready, reasons)

    async def _reconcile(self, ref: ObjectRef) -> float | None:
        """Returns and raises: as `JobReconciler.reconcile`"""
        return await self._jobs.reconcile(ref) if self.leads else None

    # ---- news from the informers -----------------------------------------------------------------

    def _settled(self) -> None:
        self._caches.open_children()
        self._caches.log_groups()
        for ref in self._jobs.unpark():
            self._queue.add(ref)
        self._assigner.settled()

    def _tell_set_aside(self, type_: ResourceType, object_: Unreadable) -> None:
        """Record an Event about an object that is set aside. A follower records no Event, because
        only the leader can send Events. A new leader records the Events of all objects that are set
        aside.
        """
        if self.leads and object_.name and object_.uid:
            message = (
                f"{object_.problem}; until then the GlobalManager does nothing for this object"
            )
            event = Event(Severity.WARNING, "Unreadable", message)
            self.recorder.record(object_.stub(type_), event)

    def _tell_clash(self, node: NodeName) -> None:
        """Record an Event about two LocalControllers that use one name, for users who look at the
        Node.

        Contacts tells each replica of each clash, so a follower has nothing to do.
        """
        message = (
            f"two LocalControllers connect as {node} in turn; give each node a name and a token "
            "of its own"
        )
        for object_ in self.nodes() if self.leads else ():
            if object_["metadata"]["name"] == node:
                about = {"apiVersion": NODES.api_version, "kind": NODES.kind, **object_}
                self.recorder.record(about, Event(Severity.WARNING, "DuplicateNode", message))

    def _count_action(self, observed: Observed, what: str, ref: ObjectRef) -> None:
        kind, metrics = self._kinds[observed.type], self._metrics.jobs
        if what == "Created":
            metrics.created(kind, ref.type)
        elif what == "Deleted":
            metrics.deleted(kind, ref.type)

    def _count_outcomes(self, observed: Observed, after: Mapping[str, Any]) -> None:
        before = status_of(observed.object)
        namespace = observed.ref.namespace
        self._metrics.jobs.written(self._kinds[observed.type], namespace, before, after)


def served_types(kinds: Sequence[Kind], groups: Sequence[str] | None) -> dict[ResourceType, Kind]:
    return {
        type_: kind
        for kind in kinds
        for type_ in kind.resources
        if groups is None or type_.group in groups
    }
