"""Takes keys from the queue and reconciles them. After a failure, the key comes again.

Built by the engine. Several tasks run `Reconcilers.work` at the same time. A failure of one key
does not affect other keys.
"""

import asyncio
from collections.abc import Awaitable, Callable

from common import logs
from common.errors import EdgeAIError, Unavailable
from globalmanager.contract import ObjectRef, ResourceType, task_key
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.queue import QueueClosed, WorkQueue
from globalmanager.kube.errors import Conflict, NotLeading

log = logs.get_logger(__name__)


class Reconcilers:
    """
    Args:
        reconcile: plans and applies one key; returns the seconds after which the key must be
            reconciled again, or None. Raises: EdgeAIError
        kind_of: the kind of a type of job resources, for metrics
    """

    def __init__(
        self,
        queue: WorkQueue[ObjectRef],
        reconcile: Callable[[ObjectRef], Awaitable[float | None]],
        *,
        kind_of: Callable[[ResourceType], str],
        metrics: EngineMetrics,
    ) -> None:
        self._queue = queue
        self._reconcile = reconcile
        self._kind_of = kind_of
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
            try:
                await self._wait_for_turn()
                await self._process(ref)
            finally:
                self._queue.done(ref)

    async def _wait_for_turn(self) -> None:
        """Wait so that each turn of the event loop computes one plan only. Without this wait, all
        reconcilers could compute a plan in the same turn, and an assignment or a session would wait
        for all plans.
        """
        async with self._turn:
            await asyncio.sleep(0)

    async def _process(self, ref: ObjectRef) -> None:
        """Reconcile one key. After a failure, queue the key again."""
        kind = self._kind_of(ref.type)
        with logs.bind(task=task_key(ref)), self._metrics.duration.labels(kind).time():
            result, retry_after_s = await self._outcome(ref)
        self._metrics.reconciles.labels(kind, result).inc()
        if retry_after_s is not None:
            self._metrics.retries.labels(kind).inc()
            self._queue.retry(ref, at_least_s=retry_after_s)

    async def _outcome(self, ref: ObjectRef) -> tuple[str, float | None]:
        """Returns the label for the metrics, and the shortest time until the next try, in seconds.
        None means that no next try is needed."""
        try:
            requeue_after_s = await self._reconcile(ref)
        except Conflict:
            return "conflict", 0.0  # another client wrote; the store will soon show the change
        except NotLeading:
            return "deposed", None  # the leader plans; a new reign of this replica queues every job
        except EdgeAIError as error:
            self._log_refusal(ref, error)
            retry_after_s = getattr(error, "retry_after_s", 0.0)
            return "unavailable" if isinstance(error, Unavailable) else "refused", retry_after_s
        except Exception:
            log.exception("reconciling failed, trying again")
            return "bug", 0.0
        self._queue.forget(ref)
        self._refused.pop(ref, None)
        if requeue_after_s is not None:
            self._queue.add_after(ref, requeue_after_s)
        return "ok", None

    def _log_refusal(self, ref: ObjectRef, error: EdgeAIError) -> None:
        """Log one line for an outage, and one line for each new refusal, but not one line for each
        try.
        """
        problem = str(error)
        kind = "unavailable" if isinstance(error, Unavailable) else problem
        if self._refused.get(ref) != kind:
            log.warning("not reconciled, trying again", problem=problem)
        self._refused[ref] = kind
