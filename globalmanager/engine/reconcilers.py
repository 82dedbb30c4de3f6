"""Takes keys from the queue and reconciles them. After a failure, the key comes again.

Several tasks run `Reconcilers.work` at the same time. A failure of one key does not affect other
keys.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from common import logs
from edgeai.api.resources import ObjectRef, ResourceType
from edgeai.errors import EdgeAIError, Unavailable
from edgeai.kube.errors import Conflict, NotLeading
from globalmanager.contract import Kind, task_key
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.queue import QueueClosed, WorkQueue
from globalmanager.engine.reconcile import JobReconciler

log = logs.get_logger(__name__)


class _Outcome(NamedTuple):
    result: str
    """The label for the metrics."""
    retry_after_s: float | None = None
    """The shortest time until the next try, in seconds. None means that no next try is needed."""
    goes_on: bool = False
    """Whether the key must be reconciled again without a rest."""


class Reconcilers:
    """Args: reconciler: plans and applies one key"""

    def __init__(
        self,
        queue: WorkQueue[ObjectRef],
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
        """Wait so that each turn of the event loop computes one plan only. Without this wait, all
        reconcilers could compute a plan in the same turn, and an assignment or a session would wait
        for all plans.
        """
        async with self._turn:
            await asyncio.sleep(0)

    async def _process(self, ref: ObjectRef) -> bool:
        """Reconcile one key. After a failure, queue the key again.

        Returns: whether the key must be reconciled again without a rest
        """
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
        """Log one line for an outage, and one line for each new refusal, but not one line for each
        try.
        """
        problem = str(error)
        kind = "unavailable" if isinstance(error, Unavailable) else problem
        if self._refused.get(ref) != kind:
            log.warning("not reconciled, trying again", problem=problem)
        self._refused[ref] = kind
