"""The engine turns every change into a key, and for every key it observes, plans and applies.

Every replica has one engine. The engine of every replica computes the assignments of nodes. It does
so on a path of its own (assign) that waits for no plan. Only the leader's engine plans.

Built by app. The edge server and REST ask the engine for objects, and the edge server writes
.status through the engine. One Engine serves all kinds. The engine keeps no state that it could not
read again after a restart. A fault of one resource does not affect other resources: an exception of
a kind or of the API leads only to a backoff of this resource's key.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry

from common import logs
from common.errors import EdgeAIError
from common.ids import NodeName, TaskKey, Uid
from common.tasks import TaskGroup
from common.traces import now
from globalmanager.cache.followed import Followed
from globalmanager.cache.groups import unserved_groups
from globalmanager.cache.health import Health, health_of
from globalmanager.cache.informer import InformerSettings
from globalmanager.cache.informers import ALL, MANAGED, Informers, Scope
from globalmanager.cache.live import Live
from globalmanager.cache.store import Store, controller_of
from globalmanager.contract import (
    NAMESPACES,
    NODES,
    POD_CONTROLLERS,
    PODS,
    SERVICES,
    Event,
    Kind,
    Object,
    ObjectRef,
    Observed,
    Plan,
    ResourceType,
    Served,
    Severity,
    WorkerSettings,
    ref_of,
    task_key,
)
from globalmanager.engine.apply import Applier, refusal_of
from globalmanager.engine.assign import Assigner, concerns_assignments
from globalmanager.engine.counts import only_counts_differ
from globalmanager.engine.drift import Drift
from globalmanager.engine.events import Recorder
from globalmanager.engine.executions import Executions
from globalmanager.engine.job_metrics import has_just_failed
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.observe import Observer, Owned
from globalmanager.engine.owners import Owners
from globalmanager.engine.pod_admission import PodAdmission, concerns_pods
from globalmanager.engine.ports import AssignmentSink
from globalmanager.engine.queue import WorkQueue
from globalmanager.engine.reconcilers import Reconcilers
from globalmanager.engine.status import StatusWriter, status_of
from globalmanager.ha.clock import Clocks
from globalmanager.ha.contacts import Contacts
from globalmanager.ha.fence import Fence
from globalmanager.kube.client import KubeClient
from globalmanager.kube.errors import TooLarge
from globalmanager.kube.objects import Unreadable
from globalmanager.kube.rate import Share
from globalmanager.rules.objects import LABEL_KIND, LABEL_NAME, label_of
from globalmanager.rules.pod_security import Level
from globalmanager.traces import TaskTraces

log = logs.get_logger(__name__)

STARTING: Final = "starting"


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the engine."""

    namespace: str = ""
    """The engine watches only this namespace; "" means all namespaces."""
    groups: tuple[str, ...] | None = None
    """API groups to serve; None means all groups of the kinds."""
    reconcilers: int = 16
    """Number of resources that are reconciled at the same time. Each of them has at most one stage
    of actions under way."""
    pod_security_default: Level = Level.PRIVILEGED
    """The Pod Security Standard of namespaces that name none by their label."""
    rest_s: float = 0.2
    """Shortest pause between two plans of one resource, in seconds. The writes of a plan, the
    reactions of controllers and the reports of an edge change a resource many times within a short
    time."""
    counts_s: float = 10.0
    """Longest time in seconds until a job is planned of which reports changed only counts, where
    the kind says that its plan does not need these at once. Such a plan corrects what somebody else
    may have written."""
    stale_after_s: float = 60.0
    """Seconds without contact after which an informer makes the process not ready."""
    informer: InformerSettings = InformerSettings()


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
        self._traces = traces
        self._settings = settings or EngineSettings()
        self._fence = fence
        self._metrics = metrics or EngineMetrics(CollectorRegistry())
        self._waits_for = STARTING  # why the engine has not begun; "" after `run`
        self._now = now = clocks.utcnow
        needed = [kind.under(worker_settings) for kind in kinds]
        self._kinds = served_types(needed, self._settings.groups)
        self._queue: WorkQueue[ObjectRef] = WorkQueue(rest_s=self._settings.rest_s)
        # Jobs that wait for an informer. A dict keeps their order: the hash of an ObjectRef differs
        # from process to process, and so would the order of a set.
        self._parked: dict[ObjectRef, None] = {}
        self._unserved: frozenset[str] = frozenset()  # API groups that the log calls not served
        self._relabelled: set[ObjectRef] = set()  # jobs whose namespace has got another level
        self._informers = Informers(
            client,
            namespace=self._settings.namespace,
            settings=self._settings.informer,
            on_change=self._changed,
            on_settled=self._settled,
            on_open=self._metrics.watch,
            on_set_aside=self._tell_set_aside,
            clock=clocks.elapsed,
        )
        self._observer = Observer(
            self._kinds,
            all_of=self._informers.all_of,
            children=self._informers.children,
            contacts=contacts,
            settings=worker_settings,
            is_absent=lambda type_: self._informers.get(type_, MANAGED).absent,
        )
        self._assigner = Assigner(
            self._kinds,
            self._observer,
            sink,
            can_observe=self._can_observe,
            is_listed=self._is_listed,
            metrics=self._metrics,
            traces=traces,
        )
        self.initially_assigned = self._assigner.initially_assigned
        """Set when the sink has the assignments of every job resource that existed at the start.
        Before, the edge server must admit no session, because it does not know what a node must
        hold."""
        plans = client.on_share(Share.PLANS)
        leading = plans if fence is None else plans.guarded(fence)
        on_drop = self._metrics.events_dropped.inc
        self.recorder = Recorder(leading, now=now, on_drop=on_drop, clock=clocks.elapsed)
        """Records Events about job resources and nodes."""
        # A plan's status write locks the job's status. If it waited behind all writes of plans, the
        # edges' reports about the job would wait, too. So it has a share of its own.
        statuses = client.on_share(Share.STATUSES)
        leading_status = statuses if fence is None else statuses.guarded(fence)
        reporting = client.on_share(Share.OTHER)
        self.report_events = Recorder(reporting, now=now, on_drop=on_drop, clock=clocks.elapsed)
        """Records Events about reports of edges, on any replica."""
        reports = client.on_share(Share.REPORTS)
        self.status_writer = StatusWriter(reports, self._informers.all_of)
        """Writes .status by merge patch to exactly one uid. On any replica, it writes the reports
        of edges."""
        self._owners = Owners(Live(leading, self._informers.all_of), now)
        self._admission = PodAdmission(
            self._informers.all_of(NAMESPACES).get,
            self._settings.pod_security_default,
            is_absent=lambda: self._informers.get(NAMESPACES).absent,
        )
        self._applier = Applier(
            Live(leading, self._written_to),
            self._owners,
            Drift(clocks.elapsed),
            self.status_writer.through(leading_status),
            self.recorder,
            admit=self._admission.check,
            reason_of=lambda job, what, type_: self._kinds[job.type].event_reason(what, type_),
            on_action=self._count_action,
            on_status=self._count_outcomes,
        )
        others = client.on_share(Share.OTHER)
        self._executions = Executions(
            others if fence is None else others.guarded(fence),
            find_pod=lambda ref: self._informers.children(ref.type).get(ref),
            on_end=self._queue.add,
            kind_of=lambda type_: self._kinds[type_].name,
            metrics=self._metrics,
        )
        self._open_informers()
        contacts.subscribe(contact=self.contact_changed, clash=self._tell_clash)

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
        self._metrics.queue_depth.set_function(lambda: len(self._queue))
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
            for object_ in self._store(type_).list():
                self._queue.add(ref_of(type_, object_))
        for informer in self._informers:
            for unreadable in informer.set_aside:
                self._tell_set_aside(informer.type, unreadable)

    # ---- questions and news from other parts ----------------------------------------------------

    def contact_changed(self, node: NodeName) -> None:
        """Queue all jobs with an assignment for `node`, because the node got a session or lost its
        session.
        """
        for ref in sorted(self._assigner.jobs_on(node), key=str):
            self._queue.add(ref)

    def find(self, key: TaskKey) -> Served | None:
        """The job resource of a task key, from the cache."""
        resource, _, rest = key.partition("/")
        namespace, _, name = rest.partition("/")
        for type_, kind in self._kinds.items():
            ref = ObjectRef(type_, namespace, name)
            if str(type_) == resource and (object_ := self._store(type_).get(ref)) is not None:
                return Served(kind, ref, object_)
        return None

    def get(self, ref: ObjectRef) -> Object | None:
        """A job resource from the cache."""
        return self._store(ref.type).get(ref)

    def by_uid(self, uid: Uid) -> Served | None:
        for type_, kind in self._kinds.items():
            for object_ in self._store(type_).find("uid", uid):
                return Served(kind, ref_of(type_, object_), object_)
        return None

    def list(self, plural: str, namespace: str = "") -> tuple[Object, ...]:
        """Job resources by plural ("models") or by plural and group ("models.edgeai.io")."""
        return tuple(
            object_
            for type_ in self._kinds
            if plural in (type_.plural, str(type_))
            for object_ in self._store(type_).list(namespace)
        )

    def jobs(self) -> Iterator[tuple[ResourceType, Object]]:
        """The job resources of all types."""
        return ((type_, each) for type_ in self._kinds for each in self._store(type_).list())

    def owned(self, ref: ObjectRef) -> Owned | None:
        """The children and pods of a job, from the caches; None when the job is gone."""
        return self._observer.owned(ref)

    def scalers(self, ref: ObjectRef) -> Mapping[ObjectRef, Object]:
        """The scalers that name a job, the oldest first."""
        return self._observer.scalers(ref)

    def cluster_ip(self, uid: Uid, namespace: str, service: str) -> str:
        """The cluster IP of a Service that is a child of the job `uid`; "": there is none."""
        found = self._informers.children(SERVICES).get(ObjectRef(SERVICES, namespace, service))
        controller = None if found is None else controller_of(found)
        if found is None or controller is None or controller.get("uid") != uid:
            return ""
        address = str(found["spec"].get("clusterIP") or "")
        return "" if address == "None" else address

    def nodes(self) -> tuple[Object, ...]:
        return self._informers.all_of(NODES).list()

    def health(self) -> Health:
        """The answer of /readyz. Before `run`, the answer says what the start waits for."""
        if self._waits_for:
            return Health(ready=False, reasons=(self._waits_for,))
        health = health_of(
            self._informers,
            jobs=self._kinds.keys(),
            stale_after_s=self._settings.stale_after_s,
            unserved=self._unserved_groups(),
        )
        reasons = (*health.reasons, *self.status_writer.complaints())
        if health.ready and not self.initially_assigned.is_set():
            reasons = ("not every resource was looked at since the start", *reasons)
            return Health(ready=False, reasons=reasons)
        return Health(health.ready, reasons)

    # ---- from changes to keys -------------------------------------------------------------------

    def _open_informers(self) -> None:
        for type_ in self._kinds:
            self._informers.get(type_)
        self._informers.get(NODES)
        self._informers.get(NAMESPACES)

    def _open_informers_of_children(self) -> None:
        """Follow the children and scalers of the kinds that have been listed. A group that is not
        installed may also lack the rights to its children.
        """
        for type_, kind in self._kinds.items():
            if not self._informers.get(type_).synced:
                continue
            for watched in kind.watched:
                self._informers.get(watched, MANAGED)
            for followed, selector in kind.followed:
                self._informers.get(followed, selector)
            for scaler in kind.scalers:
                self._informers.get(scaler)

    def _unserved_groups(self) -> dict[str, str]:
        return unserved_groups(self._informers.get(type_) for type_ in self._kinds)

    def _is_listed(self) -> bool:
        unserved = self._unserved_groups()
        return all(
            type_.group in unserved or self._informers.get(type_).settled for type_ in self._kinds
        )

    def _log_groups(self) -> None:
        """Log which API groups are not served, when that changes."""
        unserved = self._unserved_groups()
        for group in sorted(unserved.keys() - self._unserved):
            log.info("API group is not served", group=group, reason=unserved[group])
        for group in sorted(self._unserved - unserved.keys()):
            log.info("API group is served now", group=group)
        self._unserved = frozenset(unserved)

    def _changed(self, scope: Scope, old: Object | None, new: Object | None) -> None:
        if scope.type in POD_CONTROLLERS.values() and _is_same_link(old, new):
            return
        if scope.type == NAMESPACES:
            self._namespace_changed(old, new)
            return
        self._tell_owners(scope, old, new)
        self._count_change(scope, old, new)
        concerned = sorted(self._concerned(scope, old, new), key=str)
        if concerns_assignments(scope.type, old, new):
            for ref in concerned:
                self._assigner.changed(ref)
        later = self._job_that_may_wait(scope, old, new)
        for ref in concerned:
            if ref == later:
                self._queue.add_after(ref, self._settings.counts_s)
            else:
                self._queue.add(ref)

    def _job_that_may_wait(
        self, scope: Scope, old: Object | None, new: Object | None
    ) -> ObjectRef | None:
        """The changed job, when its plan has nothing to decide about the change."""
        kind = self._kinds.get(scope.type)
        if kind is None or new is None or not only_counts_differ(kind, old, new):
            return None
        return ref_of(scope.type, new)

    def _namespace_changed(self, old: Object | None, new: Object | None) -> None:
        """Queue the jobs of a namespace that asks for another Pod Security Standard."""
        changed = new or old
        if changed is None or not concerns_pods(old, new):
            return
        for type_ in self._kinds:
            for object_ in self._store(type_).list(str(changed["metadata"]["name"])):
                ref = ref_of(type_, object_)
                if old is not None:
                    self._relabelled.add(ref)
                self._queue.add(ref)

    def _tell_owners(self, scope: Scope, old: Object | None, new: Object | None) -> None:
        if scope.label_selector == ALL:
            if scope.type in self._kinds:
                self._owners.changed(old, new)
        elif old is not None and new is None and (owner := controller_of(old)) is not None:
            self._owners.lost_child(owner["uid"])

    def _count_change(self, scope: Scope, old: Object | None, new: Object | None) -> None:
        """Count deleted jobs and failed pods. Only the leader counts, so each counts once."""
        if not self.leads or old is None:
            return
        if new is None and scope.type in self._kinds:
            namespace = ref_of(scope.type, old).namespace
            self._metrics.jobs.job_deleted(self._kinds[scope.type], namespace)
        elif scope.type == PODS and new is not None and has_just_failed(old, new):
            for ref in self._observer.controllers(new):
                self._metrics.jobs.pod_failed(self._kinds[ref.type])

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

    def _concerned(self, scope: Scope, old: Object | None, new: Object | None) -> set[ObjectRef]:
        """The jobs that a change of an object concerns."""
        states = [object_ for object_ in (old, new) if object_ is not None]
        if scope.label_selector != ALL:
            owners = (self._observer.controllers(each) or self._namesake(each) for each in states)
            return {ref for refs in owners for ref in refs}
        ref = ref_of(scope.type, states[0])
        itself = {ref} if scope.type in self._kinds else set()
        return itself | self._observer.referrers(ref) | self._observer.scaled(ref, new)

    def _namesake(self, object_: Object) -> set[ObjectRef]:
        """The job that the labels of `object_` name. This job may wait until `object_` frees a
        name.
        """
        kind, name = label_of(object_, LABEL_KIND), label_of(object_, LABEL_NAME)
        namespace = object_["metadata"].get("namespace", "")
        served = self.find(TaskKey(f"{kind}/{namespace}/{name}"))
        return set() if served is None else {served.ref}

    def _settled(self) -> None:
        self._open_informers_of_children()
        self._log_groups()
        for ref in self._parked:
            self._queue.add(ref)
        self._parked.clear()
        self._assigner.settled()

    # ---- from keys to actions -------------------------------------------------------------------

    async def _reconcile(self, ref: ObjectRef) -> float | None:
        """Plan and apply one job.

        Returns: seconds after which the job must be planned again; 0 for at once, without a rest
        """
        kind = self._kinds[ref.type]
        # An object that was readable once keeps its workers and its assignments. The engine makes
        # no new child for the object, because the object may be terminating and Kubernetes would
        # have to delete each new child.
        if not self.leads or ref in self._informers.get(ref.type).set_aside:
            return None
        if not self._can_observe(kind):
            self._parked[ref] = None
            return None
        observed = self._observer.observe(ref)
        if observed is None:
            self._executions.forget(ref)
            self._parked.pop(ref, None)
            self._relabelled.discard(ref)
            return None
        if observed.absent:  # plan again when the server serves these types
            self._parked[ref] = None
        if not self._can_plan(ref):
            self._parked[ref] = None
            return None
        executions = self._executions.results(ref, observed.uid)
        if executions:
            observed = msgspec.structs.replace(observed, executions=executions)
        overridden = self._applier.overridden(observed)
        if overridden:
            observed = msgspec.structs.replace(observed, overridden=overridden)
        began_s = now()
        plan = kind.plan(observed, self._now())
        try:
            pause_s = await self._carry_out(kind, observed, plan)
        except TooLarge as error:
            if not _is_full(observed, error):
                raise
            # A retry of the same write would fail again. The next change of the job or of its
            # children leads to a new plan.
            self._tell_full(observed, error)
            return plan.requeue_after_s
        if self._traces is not None:
            key, version = task_key(ref), observed.generation
            self._traces.planned(key, observed.uid, version, since=began_s)
        return pause_s

    async def _carry_out(self, kind: Kind, observed: Observed, plan: Plan) -> float | None:
        """Returns: as `_reconcile`. Raises: EdgeAIError"""
        try:
            self._warn_of_level(observed)
            requeue_after_s = await self._applier.apply(observed, plan)
        except EdgeAIError as error:
            if self.by_uid(observed.uid) is None:
                return None  # the job was deleted meanwhile; the store's change has queued the key
            if not _is_full(observed, error):
                await self._tell_refusal(kind, observed, error)
            raise
        self._executions.want(observed, plan.executions)
        return 0.0 if plan.is_decision else requeue_after_s

    def _tell_full(self, observed: Observed, error: TooLarge) -> None:
        """Record an Event about a job whose .status the API cannot store."""
        message = (
            f".status cannot be written, because the object is too large ({error.message}): make "
            "the spec smaller; workers that exist go on"
        )
        self.recorder.record(observed.object, Event(Severity.WARNING, "TooLarge", message))

    def _warn_of_level(self, observed: Observed) -> None:
        """Record an Event about running pods that the new level of their namespace would refuse."""
        if observed.ref in self._relabelled:
            event = self._admission.warning(observed)
            self._relabelled.discard(observed.ref)
            if event is not None:
                self.recorder.record(observed.object, event)

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

    async def _tell_refusal(self, kind: Kind, observed: Observed, error: EdgeAIError) -> None:
        """Write a refusal into the job's status, because only the user can correct the fault."""
        refusal = refusal_of(error)
        if refusal is not None:
            refused = msgspec.structs.replace(observed, refusal=refusal)
            await self._applier.tell(refused, kind.plan(refused, self._now()))

    def _can_observe(self, kind: Kind) -> bool:
        """Whether the stores of the kind's children and scalers are complete. If a store lacked a
        child, the engine would create the child a second time. If a store lacked a scaler, the job
        would get another size.
        """
        owned = (self._informers.get(type_, MANAGED) for type_ in kind.watched)
        followed = (self._informers.get(*each) for each in kind.followed)
        scalers = (self._informers.get(type_) for type_ in kind.scalers)
        return all(informer.settled for informer in (*owned, *followed, *scalers))

    def _can_plan(self, ref: ObjectRef) -> bool:
        """Whether the stores of all types that the resource refers to are complete, and the store
        of the namespaces. The referred objects themselves may be missing.
        """
        types = {NAMESPACES, *(each.type for each in self._observer.references(ref))}
        return all(self._informers.get(type_).settled for type_ in types)

    def _written_to(self, type_: ResourceType) -> Store | Followed:
        """The cache for the API's answers to the writes of a plan."""
        is_whole = type_ in self._kinds or any(type_ in k.scalers for k in self._kinds.values())
        return self._store(type_) if is_whole else self._informers.children(type_)

    def _store(self, type_: ResourceType) -> Store:
        return self._informers.all_of(type_)


def _is_full(observed: Observed, error: EdgeAIError) -> bool:
    """Whether the API refuses the job itself, with a larger .status."""
    return isinstance(error, TooLarge) and error.target == str(observed.ref)


def _is_same_link(old: Object | None, new: Object | None) -> bool:
    """Whether an object still connects the same pods with the same controller."""
    return old is not None and new is not None and controller_of(old) == controller_of(new)


def served_types(kinds: Sequence[Kind], groups: Sequence[str] | None) -> dict[ResourceType, Kind]:
    return {
        type_: kind
        for kind in kinds
        for type_ in kind.resources
        if groups is None or type_.group in groups
    }
