"""What hooks do alike: one coroutine for each task of a kind, and reports of the node itself."""

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from common import wire
from common.logs import get_logger
from common.tasks import TaskGroup
from edgeai import times
from edgeai.errors import EdgeAIError, ProtocolError, Unavailable
from edgeai.ids import TaskKey, Uid, WorkerName
from localcontroller.hooks.sources import SourceError, SourceSpec
from localcontroller.ledger.attempts import UPDATE_TIME, Number, ProcessMessage
from localcontroller.ledger.ledger import MAX_REASON_CHARS, Ledger
from localcontroller.ledger.tables import NotGranted, TaskRow

log = get_logger(__name__)


class TaskFollower:
    """What the node does for the tasks of one kind: it runs `watch` for each task in the ledger,
    until the task changes or goes.

    Args:
        plural: of the kind, for example "datasets"
        retry_s: from a failed operation of the ledger to the next try
    """

    def __init__(self, ledger: Ledger, plural: str, retry_s: float) -> None:
        self._ledger = ledger
        self._plural = plural
        self._retry_s = retry_s
        self._watches: dict[TaskKey, tuple[wire.TaskVersion, asyncio.Task[None]]] = {}

    async def changed(self, tasks: list[TaskRow]) -> None:
        """The node has exactly these tasks of the kind. `watch` of a task begins later."""

    async def watch(self, task: TaskRow) -> None:
        """Work for the task until cancelled."""
        raise NotImplementedError

    async def run(self) -> None:
        """Run until cancelled."""
        async with TaskGroup() as group:
            while True:
                view = self._ledger.view
                try:
                    tasks = await self._ledger.tasks(self._plural)
                except Unavailable as error:
                    log.warning("cannot read tasks, retrying", reason=str(error))
                    await asyncio.sleep(self._retry_s)
                    continue
                tasks_by_key = {task.key: task for task in tasks}
                self._end_others(tasks_by_key)
                await self.changed(tasks)
                self._watch_new(group, tasks_by_key)
                versions = view.task_versions
                while view.task_versions is versions:
                    view = await self._ledger.change_since(view)

    def _end_others(self, tasks: Mapping[TaskKey, TaskRow]) -> None:
        for key, (version, watch) in list(self._watches.items()):
            if key not in tasks or tasks[key].task_version != version:
                watch.cancel()
                del self._watches[key]

    def _watch_new(self, group: TaskGroup, tasks: Mapping[TaskKey, TaskRow]) -> None:
        for key, task in tasks.items():
            if key not in self._watches:
                watch = group.create_task(self.watch(task), name=f"{self._plural} {key}")
                self._watches[key] = (task.task_version, watch)

    async def record(
        self, uid: Uid, worker: WorkerName, message: Callable[[], ProcessMessage]
    ) -> None:
        """Try to record what the node itself reports, until the ledger takes or refuses it.

        The message may be the same as before. The ledger writes only changed messages, and only the
        ledger knows whether the task left the node and returned.
        """
        while True:
            try:
                await self._ledger.record(uid, worker, [message()])
                return
            except NotGranted:
                return  # the task was withdrawn, or an older GlobalManager grants no such worker
            except EdgeAIError as error:
                log.warning("cannot record a report, retrying", worker=worker, reason=str(error))
                await asyncio.sleep(self._retry_s)


def read_spec(task: TaskRow) -> SourceSpec:
    """Raises: SourceError"""
    try:
        return msgspec.convert(wire.unpack(task.body, wire.AssignmentBody).spec, SourceSpec)
    except (ProtocolError, msgspec.ValidationError) as error:
        raise SourceError("InvalidSpec", f"spec: {error}") from error


def source_problem(error: Exception, key: TaskKey) -> SourceError:
    """What to report of an error. A bug in one task must not end the others."""
    if isinstance(error, SourceError):
        return error
    log.error("a source failed", task=key, exc_info=error)
    return SourceError("InternalError", type(error).__name__)


def node_message(
    task: TaskRow,
    problem: SourceError | None,
    *,
    phase: str,
    numbers: Mapping[str, Number],
    details: Mapping[str, str],
) -> ProcessMessage:
    """What the node itself reports. The ledger ignores a change of updateTime alone."""
    version, now = str(task.task_version.version), times.rfc3339(times.utc_now())
    return ProcessMessage(
        phase=phase,
        status="lost" if problem else "running",
        reason=problem.message[:MAX_REASON_CHARS] if problem else "",
        numbers=dict(numbers),
        details={
            "generation": version,
            UPDATE_TIME: now,
            **({"problem": problem.reason} if problem else details),
        },
    )
