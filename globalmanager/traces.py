"""The GlobalManager's steps of the way of a task, as spans where traces_endpoint is set.

The engine tells when it sees a change and when it has planned one. Sessions tell when a node must
hold another version, when it was sent and when the node has acknowledged it. The inbox tells when a
report was written. What is remembered is bounded; a way that is forgotten lacks later spans.
"""

from collections.abc import Iterable
from typing import Final

from common.traces import Traces, Version, now
from common.wire import Assign
from edgeai.api.resources import ObjectRef
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName
from edgeai.newest import NewestKeys
from globalmanager.contract import task_key

MAX_WAYS: Final = 4096


class TaskTraces:
    """Hears of the steps, and does nothing. All calls come from the event loop's thread."""

    def seen(self, job: ObjectRef) -> None:
        """A change of the job, or of what its assignments depend on, was seen."""

    def assigned(self, job: ObjectRef) -> None:
        """The assignments of the job are computed, and its nodes were told."""

    def planned(self, job: ObjectRef, uid: Uid, version: int, *, since: float) -> None:
        """The leader has planned the job and carried the plan out."""

    def wanted(self, node: NodeName, key: TaskKey, uid: Uid, version: int) -> None:
        """A node with a session must hold this version, and does not hold it yet."""

    def sent(self, node: NodeName, frames: Iterable[Assign]) -> None:
        """These versions are on their way to the node. Some were sent before."""

    def held(self, node: NodeName, key: TaskKey, uid: Uid, version: int) -> None:
        """The node has acknowledged the version, or has refused it."""

    def written(self, node: NodeName, way: Version, worker: WorkerName, waited_s: float) -> None:
        """A report of this version was written after `waited_s`; the first one ends the way."""

    async def close(self) -> None:
        """Send what waits, for at most CLOSE_S."""


NO_TRACES: Final = TaskTraces()


class TaskSpans(Traces, TaskTraces):
    """Sends the steps as spans. Args and raises: as Traces; replica: the instance"""

    def __init__(self, endpoint: str, replica: str) -> None:
        super().__init__(endpoint, service="globalmanager", instance=replica)
        self._changes = NewestKeys[TaskKey, float](MAX_WAYS)  # changes that are not assigned yet
        self._planned = NewestKeys[Uid, int](MAX_WAYS)  # the newest version that was planned
        self._starts = NewestKeys[Version, float](MAX_WAYS)  # ways without a written report
        self._unacknowledged = NewestKeys[tuple[NodeName, Version], float](MAX_WAYS)
        self._unsent = NewestKeys[tuple[NodeName, Version], float](MAX_WAYS)

    def seen(self, job: ObjectRef) -> None:
        key = task_key(job)
        if key not in self._changes:
            self._changes[key] = now()

    def assigned(self, job: ObjectRef) -> None:
        self._changes.pop(task_key(job), None)

    def planned(self, job: ObjectRef, uid: Uid, version: int, *, since: float) -> None:
        if self._planned.get(uid, -1) < version:
            self._planned[uid] = version
            self.step("plan and apply", Version(task_key(job), uid, version), since=since)

    def wanted(self, node: NodeName, key: TaskKey, uid: Uid, version: int) -> None:
        way = Version(key, uid, version)
        if (node, way) in self._unsent or (node, way) in self._unacknowledged:
            return
        since = self._changes.get(key, now())
        if way not in self._starts:
            self._starts[way] = since
        self.step("observe and assign", way, since=since, node=node)
        self._unsent[node, way] = now()

    def sent(self, node: NodeName, frames: Iterable[Assign]) -> None:
        for frame in frames:
            way = Version(frame.key, frame.uid, frame.version)
            since = self._unsent.pop((node, way), None)
            if since is not None:
                self.step("send", way, since=since, node=node)
                self._unacknowledged[node, way] = now()

    def held(self, node: NodeName, key: TaskKey, uid: Uid, version: int) -> None:
        way = Version(key, uid, version)
        since = self._unacknowledged.pop((node, way), None)
        if since is not None:
            self.step("wait for the node", way, since=since, node=node)

    def written(self, node: NodeName, way: Version, worker: WorkerName, waited_s: float) -> None:
        start = self._starts.pop(way, None)
        if start is not None:
            since = now() - waited_s
            self.step("write the status", way, since=since, node=node, worker=worker)
            self.whole(way, since=start)
