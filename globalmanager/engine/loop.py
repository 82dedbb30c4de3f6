"""The engine turns every change into a key, and for every key it observes, plans and applies.

The engine of every replica computes the assignments of nodes, on a path of its own (assign) that
waits for no plan. Only the leader's engine plans. It keeps no state that it could not read again
after a restart. An exception of a kind or of the API leads only to a backoff of one resource's key.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from common import logs
from common.tasks import TaskGroup
from edgeai.api.resources import NODES, Object, ObjectRef, ResourceType
from edgeai.errors import EdgeAIError, Unavailable
from edgeai.ids import NodeName
from edgeai.kube.errors import Conflict, NotLeading
from edgeai.kube.objects import Unreadable
from globalmanager.cache.health import Health
from globalmanager.cache.informer import Informer
from globalmanager.cache.informers import Informers, Scope, Subscriber
from globalmanager.contract import Event, Kind, Severity, task_key
from globalmanager.engine.assign import Assigner
from globalmanager.engine.changes import ChangeHandler
from globalmanager.engine.fan_out import FanOut
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.observe import Observer
from globalmanager.engine.queue import QueueClosed, WorkQueue
from globalmanager.engine.reconcile import JobReconciler
from globalmanager.engine.settings import EngineSettings
from globalmanager.engine.writers import Writers
from globalmanager.ha.contacts import ContactSubscriber
from globalmanager.ha.fence import Fence

STARTING: Final = "starting"


log = logs.get_logger(__name__)


class _Outcome(NamedTuple):
    result: str
    """The label for the metrics."""
    retry_after_s: float | None = None
    """The shortest time until the next try, in seconds. None means that no next try is needed."""
    goes_on: bool = False
    """Whether the key must be reconciled again without a rest."""


class Reconcilers:
    """Reconciles keys of the queue in several tasks. After a failure, the key comes again."""

    def __init__(
        self,
        queue: WorkQueue,
        reconciler: JobReconciler,
        kinds: Mapping[ResourceType, Kind],
        metrics: EngineMetrics,
    ) -> None:
        self._queue = queue
        self._reconciler = reconciler
        self._kinds = kinds
        self._metrics = metrics
        self._turn = asyncio.Lock()
        self._refused: dict[ObjectRef, str] = {}  # job -> the problem in the last log line

    async def work(self) -> None:
        """Reconcile one key after the other, until the queue is closed."""
        while True:
            try:
                ref = await self._queue.get()
            except QueueClosed:
                return
            goes_on = False
            try:
                await self._wait_for_turn()
                goes_on = await self._process(ref)
            finally:
                self._queue.done(ref, goes_on=goes_on)

    async def _wait_for_turn(self) -> None:
        """Wait so that each turn of the event loop computes one plan only."""
        # An assignment or a session would have to wait for all plans of its turn.
        async with self._turn:
            await asyncio.sleep(0)

    async def _process(self, ref: ObjectRef) -> bool:
        """Returns: whether the key must be reconciled again without a rest"""
        kind = self._kinds[ref.type].definition.name
        with logs.bind(task=task_key(ref)), self._metrics.duration.labels(kind).time():
            outcome = await self._outcome(ref)
        self._metrics.reconciles.labels(kind, outcome.result).inc()
        if outcome.retry_after_s is not None:
            self._metrics.retries.labels(kind).inc()
            self._queue.retry(ref, at_least_s=outcome.retry_after_s)
        return outcome.goes_on

    async def _outcome(self, ref: ObjectRef) -> _Outcome:
        try:
            requeue_after_s = await self._reconciler.reconcile(ref)
        except Conflict:
            # Another client wrote. The store will soon show the change.
            return _Outcome("conflict", 0.0)
        except NotLeading:
            # The leader plans. A new reign of this replica queues every job.
            return _Outcome("deposed")
        except EdgeAIError as error:
            self._log_refusal(ref, error)
            retry_after_s = getattr(error, "retry_after_s", 0.0)
            result = "unavailable" if isinstance(error, Unavailable) else "refused"
            return _Outcome(result, retry_after_s)
        except Exception:
            log.exception("reconciling failed, trying again")
            return _Outcome("bug", 0.0)
        self._queue.forget(ref)
        self._refused.pop(ref, None)
        if requeue_after_s is not None:
            self._queue.add_after(ref, requeue_after_s)
        return _Outcome("ok", goes_on=requeue_after_s == 0)

    def _log_refusal(self, ref: ObjectRef, error: EdgeAIError) -> None:
        """Log one line for an outage, and one for each new refusal, but not one for each try."""
        problem = str(error)
        kind = "unavailable" if isinstance(error, Unavailable) else problem
        if self._refused.get(ref) != kind:
            log.warning("not reconciled, trying again", problem=problem)
        self._refused[ref] = kind


class Engine(Subscriber, ContactSubscriber):
    """Reconciles all resources of the served kinds. Args: fence: open while this replica leads"""

    def __init__(
        self,
        settings: EngineSettings,
        informers: Informers,
        observer: Observer,
        writers: Writers,
        *,
        fence: Fence,
        queue: WorkQueue,
        fan_out: FanOut,
        assigner: Assigner,
        reconciler: JobReconciler,
        changes: ChangeHandler,
        metrics: EngineMetrics,
    ) -> None:
        self._settings = settings
        self._fence = fence
        self._informers = informers
        self._caches = observer.jobs.caches
        self.jobs = observer.jobs
        self._observer = observer
        self._queue = queue
        self._fan_out = fan_out
        self._assigner = assigner
        self.initially_assigned = assigner.initially_assigned
        """As the assigner's. Before it is set, the edge server must admit no session, because it
        does not know what a node must hold."""
        self.writers = writers
        self._reconciler = reconciler
        self._changes = changes
        self._metrics = metrics
        self._waits_for = STARTING  # why the engine has not begun; "" after `run`

    def waits_for_api(self, problem: str) -> None:
        """Note for `health` why the API does not deliver the root key, which `run` needs."""
        self._waits_for = f"{STARTING}: waiting for the Kubernetes API: {problem}"

    async def run(self, root_key: bytes) -> None:
        """Run the engine until this task is cancelled. Args: root_key: 32 bytes, see `rootkey`"""
        settings = msgspec.structs.replace(self._observer.settings, root_key=root_key)
        self._observer.settings = settings
        self._waits_for = ""
        self._metrics.queue_depth.set_function(lambda: len(self._queue) + len(self._fan_out))
        self._metrics.queue_oldest_s.set_function(self._queue.oldest_s)
        reconcilers = Reconcilers(self._queue, self._reconciler, self.jobs.kinds, self._metrics)
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self._assigner.run(), name="assigner")
                tasks.create_task(self._fan_out.run(), name="fan-out of plans")
                self._informers.start(tasks)
                tasks.create_task(self.writers.recorder.run(), name="events")
                tasks.create_task(self.writers.report_events.run(), name="events of reports")
                tasks.create_task(self.writers.executions.run(), name="executions")
                for number in range(self._settings.reconcilers):
                    tasks.create_task(reconcilers.work(), name=f"reconciler {number}")
        finally:
            self._queue.close()

    @property
    def is_starting(self) -> bool:
        """Whether `run` has not begun, because the API has not given the root key yet."""
        return bool(self._waits_for)

    def leadership_changed(self, leads: bool) -> None:
        """Queue every job when this replica begins to lead; stop commands in pods when it ends."""
        if not leads:
            self.writers.executions.stop()
            return
        self.writers.owners.begin_reign()
        for ref in self.jobs.refs():
            self._queue.add(ref)
        for informer in self._informers:
            for unreadable in informer.set_aside:
                self.set_aside(informer.type, unreadable)

    def health(self) -> Health:
        """The answer of /readyz. Before `run`, the answer says what the start waits for."""
        if self._waits_for:
            return Health(ready=False, reasons=(self._waits_for,))
        health = self._caches.health(stale_after_s=self._settings.stale_after_s)
        reasons = (*health.reasons, *self.writers.status_writer.complaints())
        if health.ready and not self.initially_assigned.is_set():
            reasons = ("not every resource was looked at since the start", *reasons)
            return Health(ready=False, reasons=reasons)
        return Health(health.ready, reasons)

    # ---- news from contacts ----------------------------------------------------------------------

    def contact_changed(self, node: NodeName) -> None:
        """Queue all jobs with an assignment for `node`, which got or lost its session."""
        self._fan_out.changed(node, self._assigner.jobs_on(node))

    def clash(self, node: NodeName) -> None:
        """Record an Event on the Node about two LocalControllers that use its name."""
        # Contacts tells each replica of each clash, so a follower has nothing to do.
        message = (
            f"two LocalControllers connect as {node} in turn; give each node a name and a token "
            "of its own"
        )
        for object_ in self.jobs.nodes() if self._fence.is_open else ():
            if object_["metadata"]["name"] == node:
                about = {"apiVersion": NODES.api_version, "kind": NODES.kind, **object_}
                self.writers.recorder.record(
                    about, Event(Severity.WARNING, "DuplicateNode", message)
                )

    # ---- news from the informers -----------------------------------------------------------------

    def changed(self, scope: Scope, old: Object | None, new: Object | None) -> None:
        self._changes.changed(scope, old, new)

    def opened(self, informer: Informer) -> None:
        self._metrics.watch(informer)

    def completeness_changed(self) -> None:
        self._caches.open_children()
        self._caches.log_groups()
        for ref in self._reconciler.unpark():
            self._queue.add(ref)
        self._assigner.completeness_changed()

    def set_aside(self, type_: ResourceType, object_: Unreadable) -> None:
        """Record an Event about an object that is set aside."""
        # Only the leader can send it; a new one records those of all objects that are set aside.
        if self._fence.is_open and object_.name and object_.uid:
            message = (
                f"{object_.problem}; until then the GlobalManager does nothing for this object"
            )
            event = Event(Severity.WARNING, "Unreadable", message)
            self.writers.recorder.record(object_.stub(type_), event)
