"""Computes the assignments of a job when an object changes, and gives them to the sink at once.

Jobs that only name a changed object come a few at a time, after jobs that have changed themselves.
An assignment waits for no plan, no request to the Kubernetes API and no rate limit. Every replica
computes all assignments, whether or not it leads.
"""

import asyncio
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, Final, Protocol

from common import logs
from common.clock import SYSTEM_CLOCK, Clock
from common.tasks import TaskGroup
from edgeai.api.pod_state import node_of, phase_of
from edgeai.api.resources import CONFIG_MAPS, PODS, Object, ObjectRef, ResourceType
from edgeai.api.status import mapping
from edgeai.ids import NodeName, TaskKey, Uid
from globalmanager.cache.store import uid_of
from globalmanager.contract import Assignment, Kind, task_key
from globalmanager.engine.fan_out import FanOut
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.observe import Observer
from globalmanager.engine.queue import WorkQueue
from globalmanager.engine.relation import JobRelation
from globalmanager.traces import NO_TRACES, TaskTraces

log = logs.get_logger(__name__)

# Seconds after which other tasks may run: heartbeats and Leases must not wait for the 10,000 jobs
# that may be there after a start.
_SLICE_S: Final = 0.005
_JOBS_PER_SLICE: Final = 4  # of a fan-out; a job takes about 0.2 ms
_REST: Final = 9.0
"""A job that takes long rests so many times as long: the pods of a fleet change one by one."""
# Fields of .metadata that every write changes. A write of .status alone changes them too.
_CHANGED_BY_EVERY_WRITE: Final = frozenset({"resourceVersion", "managedFields"})


class AssignmentSink(Protocol):
    """Takes the assignments of all nodes. Both methods return at once and never raise."""

    def assign(self, key: TaskKey, by_node: Mapping[NodeName, Assignment]) -> None:
        """Replace all assignments of one task, mostly by the same ones."""

    def forget(self, key: TaskKey) -> None:
        """Remove all assignments of one task, which may have none."""


class Assigner:
    """Computes assignments from a queue of changed jobs, and keeps none: the sink does.

    Args: plans: gets the jobs whose content other nodes read than before
    """

    def __init__(
        self,
        observer: Observer,
        sink: AssignmentSink,
        *,
        plans: FanOut,
        metrics: EngineMetrics,
        traces: TaskTraces = NO_TRACES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._jobs = observer.jobs
        self._caches = observer.jobs.caches
        self._observer = observer
        self._sink = sink
        self._plans = plans
        self._metrics = metrics
        self._traces = traces
        self._queue = WorkQueue()
        self._fan_out = FanOut(self._queue, jobs_per_slice=_JOBS_PER_SLICE, clock=clock)
        # jobs that wait for an informer to settle, in order
        self._parked: dict[ObjectRef, None] = {}
        self._nodes = JobRelation[NodeName]()  # job -> nodes with an assignment
        self._uids: dict[ObjectRef, Uid] = {}  # the jobs whose assignments the sink has
        self.initially_assigned = asyncio.Event()
        """Set when the sink has the assignments of every job that existed at the start."""

    async def run(self) -> None:
        """Compute the assignments of the queued jobs until this task is cancelled."""
        async with TaskGroup() as tasks:
            tasks.create_task(self._fan_out.run(), name="fan-out of assignments")
            tasks.create_task(self._work(), name="assignments")

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        pause_at = loop.time() + _SLICE_S
        try:
            while True:
                # `get` lets other tasks run only when the queue is empty
                ref = await self._queue.get()
                began = loop.time()
                self._assign(ref)
                took_s = loop.time() - began
                self._queue.done(ref, rest_s=_REST * took_s if took_s > _SLICE_S else 0.0)
                self._check_initially_assigned()
                if loop.time() >= pause_at:
                    await asyncio.sleep(0)
                    pause_at = loop.time() + _SLICE_S
        finally:
            self._queue.close()

    def changed(self, ref: ObjectRef) -> None:
        """Note that the job, or a child of it, has changed or was deleted."""
        self._traces.seen(ref)
        self._queue.add(ref)

    def reference_changed(self, source: Hashable, jobs: Iterable[ObjectRef]) -> None:
        """Note a change of `source`, which `jobs` name. A change of a job itself goes first."""
        self._fan_out.changed(source, jobs)

    def completeness_changed(self) -> None:
        """Note that the store of one more informer is complete."""
        for ref in self._parked:
            self._queue.add(ref)
        self._parked.clear()
        self._check_initially_assigned()

    def jobs_on(self, node: NodeName) -> tuple[ObjectRef, ...]:
        return self._nodes.jobs(node)

    def _assign(self, ref: ObjectRef) -> None:
        kind = self._jobs.kinds[ref.type]
        if not self._caches.can_observe(kind):
            self._parked[ref] = None
            return
        try:
            self._compute(ref, kind)
        except Exception:
            # A bug of a kind affects only this job. Its nodes keep their assignments.
            with logs.bind(task=task_key(ref)):
                log.exception("it is not known what nodes must hold, trying again")
            self._metrics.reconciles.labels(kind.definition.name, "bug").inc()
            self._fail(ref)
        else:
            self._queue.forget(ref)

    def _compute(self, ref: ObjectRef, kind: Kind) -> None:
        """Compute the job's present assignments and give them to the sink."""
        observed = self._observer.observe(ref)
        if observed is None:
            self._forget(ref)
            return
        if self._observer.lacks_nodes(ref):
            self._parked[ref] = None
            return
        by_node = kind.assignments(observed)
        self._nodes.set(ref, by_node)
        self._sink.assign(task_key(ref), by_node)
        self._uids[ref] = observed.uid
        self._set_readers(ref, by_node)
        self._traces.assigned(ref)

    def _fail(self, ref: ObjectRef) -> None:
        job = self._jobs.get(ref)
        if job is not None and self._uids.get(ref) not in (None, uid_of(job)):
            self._forget(ref)  # the nodes hold assignments of an earlier job of the same name
        self._queue.retry(ref)

    def _forget(self, ref: ObjectRef) -> None:
        self._uids.pop(ref, None)
        self._nodes.drop(ref)
        self._sink.forget(task_key(ref))
        self._set_readers(ref, {})

    def _set_readers(self, ref: ObjectRef, by_node: Mapping[NodeName, Assignment]) -> None:
        """The inputs of a job, for example Models, belong on the nodes of the job."""
        for input_ in self._observer.readers.set(ref, by_node):
            if input_.type in self._jobs.kinds:
                self._queue.add(input_)
                self._plans.changed(input_, [input_])

    def _check_initially_assigned(self) -> None:
        """Set `initially_assigned` when no job waits."""
        # One whose kind has failed does not count: one bad job must not keep all edge nodes out.
        if self.initially_assigned.is_set():
            return
        if not (self._queue or self._fan_out or self._parked) and self._caches.is_listed():
            self.initially_assigned.set()
            self._observer.readers.are_complete = True
            for ref in self._jobs.refs():
                if self._jobs.kinds[ref.type].has_readers:
                    self._plans.changed(ref, [ref])


def concerns_assignments(
    type_: ResourceType,
    old: Object | None,
    new: Object | None,
    decisions: Collection[str] = (),
) -> bool:
    """Whether a change of an object may change assignments. They depend on specs, and on the nodes
    and phases of pods. Another write of .status leaves metadata.generation unchanged. An object of
    another type without generations may have changed in any way.

    Args: decisions: fields of .status on which assignments rest, too
    """
    if type_ == CONFIG_MAPS:  # no assignment depends on one
        return False
    if old is None or new is None:
        return True
    before, after = old["metadata"], new["metadata"]
    keys = (before.keys() | after.keys()) - _CHANGED_BY_EVERY_WRITE
    if any(before.get(key) != after.get(key) for key in keys):
        return True
    if decisions and _fields(old, decisions) != _fields(new, decisions):
        return True
    # A fleet has thousands of pods, and each of them becomes ready, and not ready, now and then.
    if type_ == PODS:
        return (node_of(old), phase_of(old)) != (node_of(new), phase_of(new))
    return "generation" not in after


def _fields(object_: Object, names: Collection[str]) -> list[Any]:
    status = mapping(object_.get("status"))
    return [status.get(name) for name in names]
