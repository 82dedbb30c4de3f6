"""Plans one job and carries the plan out. A refusal of the API that only the user can correct
becomes the job's status. A job is parked while a cache that its plan needs is not complete.
"""

import msgspec

from common.clock import Clock
from common.traces import now as traced_now
from edgeai.api.resources import ObjectRef
from edgeai.errors import EdgeAIError
from edgeai.kube.errors import TooLarge
from globalmanager.contract import Event, Kind, Observed, Plan, Severity
from globalmanager.engine.apply import StillTerminating, refusal_of
from globalmanager.engine.observe import Observer
from globalmanager.engine.writers import Writers
from globalmanager.ha.fence import Fence
from globalmanager.traces import TaskTraces


class JobReconciler:
    """Args: fence: open while this replica leads"""

    def __init__(
        self,
        observer: Observer,
        writers: Writers,
        *,
        fence: Fence,
        clock: Clock,
        traces: TaskTraces,
    ) -> None:
        self._jobs = observer.jobs
        self._fence = fence
        self._caches = observer.jobs.caches
        self._observer = observer
        self._applier = writers.applier
        self._admission = writers.admission
        self._executions = writers.executions
        self._recorder = writers.recorder
        self._clock = clock
        self._traces = traces
        # Jobs that wait for an informer. A set would have another order in each process.
        self._parked: dict[ObjectRef, None] = {}
        self._relabelled: set[ObjectRef] = set()  # jobs whose namespace has got another level

    def unpark(self) -> tuple[ObjectRef, ...]:
        """The jobs that wait for a cache, in their order. From now on they do not wait."""
        refs = tuple(self._parked)
        self._parked.clear()
        return refs

    def level_changed(self, ref: ObjectRef) -> None:
        """Tell the job with its next plan which of its running pods the namespace would refuse."""
        self._relabelled.add(ref)

    async def reconcile(self, ref: ObjectRef) -> float | None:
        """Plan and apply one job, if this replica leads.

        Returns: seconds after which the job must be planned again; 0 for at once, without a rest
        Raises: EdgeAIError
        """
        if not self._fence.is_open:
            return None
        kind = self._jobs.kinds[ref.type]
        # An object that was readable once keeps its workers and its assignments. It gets no new
        # child, because it may be terminating and Kubernetes would have to delete each new child.
        # Without its readers, a job would take from its status what they have told. The assigner
        # queues the job when they are here.
        has_readers = not kind.has_readers or self._observer.readers.are_complete
        if self._caches.is_set_aside(ref) or not has_readers:
            return None
        if not self._caches.can_observe(kind):
            self._parked[ref] = None
            return None
        observed = self._observer.observe(ref)
        if observed is None:
            self._forget(ref)
            return None
        if observed.absent:  # plan again when the server serves these types
            self._parked[ref] = None
        has_references = self._caches.can_plan(self._observer.references(ref))
        if not has_references or self._observer.lacks_nodes(ref):
            self._parked[ref] = None
            return None
        return await self._plan(kind, self._with_memories(observed))

    def _forget(self, ref: ObjectRef) -> None:
        self._executions.forget(ref)
        self._parked.pop(ref, None)
        self._relabelled.discard(ref)

    def _with_memories(self, observed: Observed) -> Observed:
        """What the caches do not have: results of commands in pods, and overridden fields."""
        executions = self._executions.results(observed.ref, observed.uid)
        if executions:
            observed = msgspec.structs.replace(observed, executions=executions)
        overridden = self._applier.overridden(observed)
        if overridden:
            observed = msgspec.structs.replace(observed, overridden=overridden)
        return observed

    async def _plan(self, kind: Kind, observed: Observed) -> float | None:
        """Returns and raises: as `reconcile`"""
        began_s = traced_now()
        plan = kind.plan(observed, self._clock.utcnow())
        try:
            pause_s = await self._carry_out(kind, observed, plan)
        except TooLarge as error:
            if not _is_full(observed, error):
                raise
            # A retry would fail again. A change of the job or its children leads to a new plan.
            self._tell_full(observed, error)
            return plan.requeue_after_s
        self._traces.planned(observed.ref, observed.uid, observed.generation, since=began_s)
        return pause_s

    async def _carry_out(self, kind: Kind, observed: Observed, plan: Plan) -> float | None:
        """Returns and raises: as `reconcile`"""
        try:
            self._warn_of_level(observed)
            requeue_after_s = await self._applier.apply(observed, plan)
        except EdgeAIError as error:
            if self._jobs.by_uid(observed.uid) is None:
                return None  # the job was deleted meanwhile; the store's change has queued the key
            if not _is_full(observed, error):
                await self._tell_refusal(kind, observed, error)
            raise
        self._executions.want(observed, plan.executions)
        return 0.0 if plan.is_decision else requeue_after_s

    # ---- what the user learns -------------------------------------------------------------------

    async def _tell_refusal(self, kind: Kind, observed: Observed, error: EdgeAIError) -> None:
        """Write a refusal into the job's status, because only the user can correct the fault."""
        now = self._clock.utcnow()
        refusal = error.refusal(now) if isinstance(error, StillTerminating) else refusal_of(error)
        if refusal is not None:
            with_refusal = msgspec.structs.replace(observed, refusal=refusal)
            await self._applier.tell(with_refusal, kind.plan(with_refusal, now))

    def _tell_full(self, observed: Observed, error: TooLarge) -> None:
        """Record an Event about a job whose .status the API cannot store."""
        message = (
            f".status cannot be written, because the object is too large ({error.message}): make "
            "the spec smaller; workers that exist go on"
        )
        self._recorder.record(observed.object, Event(Severity.WARNING, "TooLarge", message))

    def _warn_of_level(self, observed: Observed) -> None:
        """Record an Event about running pods that the new level of their namespace would refuse."""
        if observed.ref in self._relabelled:
            event = self._admission.warning(observed)
            self._relabelled.discard(observed.ref)
            if event is not None:
                self._recorder.record(observed.object, event)


def _is_full(observed: Observed, error: EdgeAIError) -> bool:
    """Whether the API refuses the job itself, with a larger .status."""
    return isinstance(error, TooLarge) and error.target == str(observed.ref)
