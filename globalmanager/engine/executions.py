"""Runs the commands that plans want to run in pods (`Plan.executions`), and keeps their results.

Only the leader runs commands. A plan starts them and sees their results, and never waits for them.
All results are lost with the process; then the next leader runs the commands again.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from common import logs
from common.tasks import TaskGroup
from edgeai.api.resources import PODS, ObjectRef
from edgeai.backoff import Backoff
from edgeai.errors import Unavailable
from edgeai.ids import Uid
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import ApiError, Forbidden, NotFound, NotLeading
from edgeai.kube.slots import Slots
from globalmanager.cache.store import uid_of
from globalmanager.contract import Execution, ExecutionFailure, Observed, Result
from globalmanager.engine.caches import Caches
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.queue import WorkQueue

log = logs.get_logger(__name__)

MAX_RUNNING: Final = 64
"""Most commands that run at the same time. Each command occupies a connection to the API server."""
MAX_IN_NAMESPACE: Final = 4
"""Most commands of one namespace that run at the same time."""
_ENDED: Final = ("Succeeded", "Failed")


class _Run:
    """One execution of a job."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution
        self.result: Result | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the execution began when this replica did not lead, and so did not run."""
        return self.task is not None and self.task.done() and self.result is None

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


class Executions:
    """The executions of all jobs. Args: client: runs commands only while this replica leads"""

    def __init__(
        self,
        client: KubeClient,
        *,
        caches: Caches,
        queue: WorkQueue,
        metrics: EngineMetrics,
    ) -> None:
        self._client = client
        self._caches = caches
        self._queue = queue
        self._metrics = metrics
        self._runs: dict[tuple[ObjectRef, Uid], dict[str, _Run]] = {}
        self._slots = Slots(MAX_RUNNING, calm=MAX_RUNNING)
        # Only the tasks of a namespace keep its semaphore alive.
        self._namespaces: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        try:
            async with TaskGroup() as self._tasks:
                await asyncio.Event().wait()
        finally:
            self._tasks = None
            self._runs.clear()

    def results(self, ref: ObjectRef, uid: Uid) -> dict[str, Result | None]:
        """`Observed.executions` of a job."""
        return {key: run.result for key, run in self._runs.get((ref, uid), {}).items()}

    def want(self, observed: Observed, executions: Mapping[str, Execution]) -> None:
        """Start what is new among `wanted`; cancel and forget all other executions of the job."""
        job = (observed.ref, observed.uid)
        runs = self._runs.get(job, {})
        for key, run in list(runs.items()):
            if run.is_lost or executions.get(key) != run.execution:
                run.cancel()
                del runs[key]
        for key, execution in executions.items():
            if key not in runs and self._tasks is not None:
                self._runs.setdefault(job, runs)[key] = run = _Run(execution)
                name = f"command in {observed.ref.namespace}/{execution.pod}"
                run.task = self._tasks.create_task(self._carry_out(observed.ref, run), name=name)
        if not runs:
            self._runs.pop(job, None)

    def forget(self, ref: ObjectRef) -> None:
        """Cancel and forget all executions of a job that is gone."""
        for job in [run_key for run_key in self._runs if run_key[0] == ref]:
            self._drop(job)

    def stop(self) -> None:
        """Cancel and forget all executions, because another replica leads from now on."""
        for job in list(self._runs):
            self._drop(job)

    def _drop(self, job: tuple[ObjectRef, Uid]) -> None:
        for run in self._runs.pop(job).values():
            run.cancel()

    # ---- one execution --------------------------------------------------------------------------

    async def _carry_out(self, ref: ObjectRef, run: _Run) -> None:
        outcome = "Cancelled"
        try:
            async with self._turn(ref.namespace):
                run.result = await self._result(ref.namespace, run.execution)
            outcome = _outcome(run.result)
        except NotLeading:
            return  # a new reign of this replica starts the execution again
        except Exception:
            # A bug must not end the commands of other jobs.
            log.exception("running a command in a pod failed")
            outcome, message = "Bug", "the GlobalManager's log says what failed"
            run.result = Result(fault=ExecutionFailure.REFUSED, message=message)
        finally:
            kind = self._caches.kinds[ref.type].definition.name
            self._metrics.executions.labels(kind, outcome).inc()
        self._queue.add(ref)

    @asynccontextmanager
    async def _turn(self, namespace: str) -> AsyncIterator[None]:
        """Wait until a further command may run. The namespaces take turns."""
        semaphore = self._namespaces.get(namespace)
        if semaphore is None:
            semaphore = self._namespaces[namespace] = asyncio.Semaphore(MAX_IN_NAMESPACE)
        async with semaphore, self._slots.taken(namespace):
            self._metrics.executing.inc()
            try:
                yield
            finally:
                self._metrics.executing.dec()

    async def _result(self, namespace: str, execution: Execution) -> Result:
        """Raises: NotLeading"""
        where = f"container {execution.container} of pod {execution.pod}"
        problem = "the command has not ended"
        backoff = Backoff(base_s=1.0, max_s=10.0, floor_s=0.1)
        try:
            async with asyncio.timeout(execution.timeout_s):
                while True:
                    try:
                        return await self._attempt(namespace, execution)
                    except Unavailable as error:
                        problem = str(error)
                        asked_s = getattr(error, "retry_after_s", 0.0)
                        await asyncio.sleep(backoff.next_s(at_least_s=asked_s))
        except TimeoutError:
            message = f"{where}: no end within {execution.timeout_s:g} s; {problem}"
            return Result(fault=ExecutionFailure.TIMEOUT, message=message)
        except NotLeading:
            raise
        except Forbidden as error:
            return Result(fault=ExecutionFailure.FORBIDDEN, message=str(error))
        except NotFound as error:
            return Result(fault=ExecutionFailure.NOT_RUNNING, message=f"{where}: {error}")
        except ApiError as error:
            return Result(fault=ExecutionFailure.REFUSED, message=f"{where}: {error}")

    async def _attempt(self, namespace: str, execution: Execution) -> Result:
        """Raises: ApiError, Overloaded"""
        ref = ObjectRef(PODS, namespace, execution.pod)
        pod = self._caches.pod(ref)
        if pod is None or uid_of(pod) != execution.uid:
            return Result(fault=ExecutionFailure.POD_GONE, message=f"pod {execution.pod} is gone")
        if (pod.get("status") or {}).get("phase") in _ENDED:
            message = f"pod {execution.pod} has ended"
            return Result(fault=ExecutionFailure.NOT_RUNNING, message=message)
        end = await self._client.execute(
            ref, container=execution.container, command=execution.command, stdin=execution.stdin
        )
        return Result(exit_code=end.exit_code, output=end.output)


def _outcome(result: Result) -> str:
    if result.fault is not None:
        return result.fault.value
    return "Succeeded" if result.exit_code == 0 else "Failed"
