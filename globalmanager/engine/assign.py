"""Tells the sink what each node must hold, the moment an object changes.

Called by loop with each job that a change concerns. The answer comes from the stores and the kind
alone: no plan, no request to the API and no rate limit stands between a change and its nodes.
Every replica does this, whether or not it leads.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from common import logs
from common.ids import NodeName, Uid
from globalmanager.cache.index import Relation
from globalmanager.cache.store import uid_of
from globalmanager.contract import PODS, Kind, Object, ObjectRef, ResourceType, task_key
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.observe import Observer
from globalmanager.engine.ports import AssignmentSink
from globalmanager.engine.queue import WorkQueue

log = logs.get_logger(__name__)

# After a start there may be 10,000 jobs, and heartbeats and Leases are not to wait for all of them.
_SLICE_S: Final = 0.005
# What a write changes besides .status when it changes nothing but that.
_OF_EVERY_WRITE: Final = frozenset({"resourceVersion", "managedFields"})


class Assigner:
    """Holds no assignment: the sink does.

    Args:
        can_observe: whether all is known that the assignments of a kind depend on
        is_listed: whether the stores have every job resource that was there at the start
    """

    def __init__(
        self,
        kinds: Mapping[ResourceType, Kind],
        observer: Observer,
        sink: AssignmentSink,
        *,
        can_observe: Callable[[Kind], bool],
        is_listed: Callable[[], bool],
        metrics: EngineMetrics,
    ) -> None:
        self._kinds = kinds
        self._observer = observer
        self._sink = sink
        self._can_observe = can_observe
        self._is_listed = is_listed
        self._metrics = metrics
        self._queue: WorkQueue[ObjectRef] = WorkQueue()
        self._parked: set[ObjectRef] = set()  # wait for an informer to settle
        self._nodes: Relation[ObjectRef, NodeName] = Relation()  # job -> where it is assigned
        self._uids: dict[ObjectRef, Uid] = {}  # of the jobs that the sink was given
        self.caught_up = asyncio.Event()
        """Set once every job resource that was there at the start was given to the sink."""

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        pause_at = loop.time() + _SLICE_S
        try:
            while True:
                ref = await self._queue.get()  # which does not yield while there is one
                self._assign(ref)
                self._queue.done(ref)
                self._check_caught_up()
                if loop.time() >= pause_at:
                    await asyncio.sleep(0)
                    pause_at = loop.time() + _SLICE_S
        finally:
            self._queue.close()

    def changed(self, ref: ObjectRef) -> None:
        """The job, or something that its assignments depend on, has changed or was deleted."""
        self._queue.add(ref)

    def settled(self) -> None:
        """One more informer has settled."""
        for ref in self._parked:
            self._queue.add(ref)
        self._parked.clear()
        self._check_caught_up()

    def jobs_on(self, node: NodeName) -> frozenset[ObjectRef]:
        """The jobs of which `node` must hold something."""
        return self._nodes.of(node)

    def _assign(self, ref: ObjectRef) -> None:
        kind = self._kinds[ref.type]
        if not self._can_observe(kind):
            self._parked.add(ref)
            return
        try:
            self._give(ref, kind)
        except Exception:
            # A kind's bug concerns one job: what its nodes hold stays, the others go on.
            with logs.bind(task=task_key(ref)):
                log.exception("it is not known what nodes must hold, trying again")
            self._metrics.reconciles.labels(kind.name, "bug").inc()
            self._fail(ref)
        else:
            self._queue.forget(ref)

    def _give(self, ref: ObjectRef, kind: Kind) -> None:
        observed = self._observer.observe(ref)
        if observed is None:
            self._forget(ref)
            return
        by_node = kind.assignments(observed)
        self._nodes.set(ref, by_node)
        self._sink.assign(task_key(ref), by_node)
        self._uids[ref] = observed.uid

    def _fail(self, ref: ObjectRef) -> None:
        job = self._observer.find(ref)
        if job is not None and self._uids.get(ref) not in (None, uid_of(job)):
            self._forget(ref)  # what nodes hold is of another job that had the name
        self._queue.retry(ref)

    def _forget(self, ref: ObjectRef) -> None:
        self._uids.pop(ref, None)
        self._nodes.drop(ref)
        self._sink.forget(task_key(ref))

    def _check_caught_up(self) -> None:
        """A job whose kind failed counts as given: one resource must not shut out all edges."""
        if not self._queue and not self._parked and self._is_listed():
            self.caught_up.set()


def concerns_assignments(type_: ResourceType, old: Object | None, new: Object | None) -> bool:
    """Whether a change may change what nodes must hold.

    Assignments depend on specs and on where pods are, so a write of .status changes none. It leaves
    metadata.generation as it is; a type without generations may have changed in any way.
    """
    if old is None or new is None or type_ == PODS:
        return True
    before, after = old["metadata"], new["metadata"]
    keys = (before.keys() | after.keys()) - _OF_EVERY_WRITE
    return "generation" not in after or any(before.get(key) != after.get(key) for key in keys)
