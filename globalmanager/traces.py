"""The GlobalManager's steps of the way of a task, as spans; used where traces_endpoint is set.

The engine tells when it sees a change and when it has planned one. Sessions tell when a node must
hold another version, when it was sent and when the node has acknowledged it. The inbox tells when a
report of the node was written. What is remembered of each way is bounded; a way that is forgotten
lacks its later spans.
"""

from collections import OrderedDict
from typing import Final, NamedTuple, TypeVar

from common.traces import Traces, Version, now
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName

MAX_WAYS: Final = 4096

K = TypeVar("K")
V = TypeVar("V")


class _OnNode(NamedTuple):
    uid: Uid
    version: int
    node: NodeName


class TaskTraces:
    """All calls come from the event loop's thread."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._seen: OrderedDict[TaskKey, float] = OrderedDict()  # changes that are not assigned yet
        self._planned: OrderedDict[Uid, int] = OrderedDict()  # the newest version that was planned
        self._began: OrderedDict[Version, float] = OrderedDict()  # ways without a written report
        self._sent: OrderedDict[_OnNode, float] = OrderedDict()  # not acknowledged yet
        self._waiting: OrderedDict[_OnNode, float] = OrderedDict()  # not sent yet

    def seen(self, key: TaskKey) -> None:
        """A change of the job, or of what its assignments depend on, was seen."""
        if key not in self._seen:
            _remember(self._seen, key, now())

    def assigned(self, key: TaskKey) -> None:
        """The assignments of the job are computed, and its nodes were told."""
        self._seen.pop(key, None)

    def planned(self, key: TaskKey, uid: Uid, version: int, *, since: float) -> None:
        """The leader has planned the job and carried the plan out."""
        if self._planned.get(uid, -1) < version:
            _remember(self._planned, uid, version)
            self._traces.step("plan and apply", Version(key, uid, version), since=since)

    def wanted(self, node: NodeName, key: TaskKey, uid: Uid, version: int) -> None:
        """A node with a session must hold this version, and does not hold it yet."""
        on_node, way = _OnNode(uid, version, node), Version(key, uid, version)
        if on_node in self._waiting or on_node in self._sent:
            return
        since = self._seen.get(key, now())
        if way not in self._began:
            _remember(self._began, way, since)
        self._traces.step("observe and assign", way, since=since, node=node)
        _remember(self._waiting, on_node, now())

    def sent(self, node: NodeName, key: TaskKey, uid: Uid, version: int) -> None:
        """The version is on its way to the node."""
        on_node = _OnNode(uid, version, node)
        since = self._waiting.pop(on_node, None)
        if since is not None:
            self._traces.step("send", Version(key, uid, version), since=since, node=node)
            _remember(self._sent, on_node, now())

    def held(self, node: NodeName, key: TaskKey, uid: Uid, version: int) -> None:
        """The node has acknowledged the version, or has refused it."""
        since = self._sent.pop(_OnNode(uid, version, node), None)
        if since is not None:
            way = Version(key, uid, version)
            self._traces.step("wait for the node", way, since=since, node=node)

    def written(
        self, node: NodeName, way: Version, worker: WorkerName, *, arrived_s_ago: float
    ) -> None:
        """A report of this version was written; the first one ends the way."""
        began = self._began.pop(way, None)
        if began is not None:
            since = now() - arrived_s_ago
            self._traces.step("write the status", way, since=since, node=node, worker=worker)
            self._traces.whole(way, since=began)


def _remember(where: OrderedDict[K, V], key: K, value: V) -> None:
    where[key] = value
    if len(where) > MAX_WAYS:
        where.popitem(last=False)
