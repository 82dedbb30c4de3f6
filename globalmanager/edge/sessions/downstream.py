"""The desired set of each node: what it must hold. The engine writes it, the sessions read it.

The engine calls `assign` and `forget` for one task at a time. Subscribers are told exactly the
(node, task) pairs that changed. A body is encoded once for all sessions.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from common import wire
from common.cloud_session import Desired
from common.ids import NodeName, TaskKey, Uid, WorkerName
from common.logs import get_logger
from globalmanager.contract import Assignment

log = get_logger(__name__)

MAX_BODY_BYTES: Final = wire.MAX_MESSAGE_BYTES - 64 * 1024  # leaves room for the Assign around it

Subscriber = Callable[[NodeName, TaskKey, Desired | None], None]
"""(node, task, what the node must hold of it now; None: nothing)"""

_NOTHING: Final[Mapping[TaskKey, Desired]] = MappingProxyType({})


class Binding(NamedTuple):
    """A task on a node, and the workers that may report from there."""

    key: TaskKey
    workers: frozenset[WorkerName]


class DesiredSets:
    """The desired set of every node. All calls come from the event loop's thread."""

    def __init__(self) -> None:
        self._by_node: dict[NodeName, dict[TaskKey, Desired]] = {}
        self._bindings: dict[tuple[NodeName, Uid], Binding] = {}
        self._nodes_of: dict[TaskKey, frozenset[NodeName]] = {}
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def assign(self, key: TaskKey, by_node: Mapping[NodeName, Assignment]) -> None:
        """Say anew what each node must hold of `key`; a node that is not named holds nothing."""
        wanted = {
            node: task
            for node, assignment in by_node.items()
            if (task := encode(assignment)) is not None
        }
        for node in self._nodes_of.get(key, frozenset()) - wanted.keys():
            self._remove(node, key)
        for node, task in wanted.items():
            self._put(node, key, task, frozenset(by_node[node].body.workers))
        if wanted:
            self._nodes_of[key] = frozenset(wanted)
        else:
            self._nodes_of.pop(key, None)

    def forget(self, key: TaskKey) -> None:
        """The task is gone: no node holds it."""
        self.assign(key, {})

    def for_node(self, node: NodeName) -> Mapping[TaskKey, Desired]:
        """A live view, read-only."""
        tasks = self._by_node.get(node)
        return _NOTHING if tasks is None else MappingProxyType(tasks)

    def binding_of(self, node: NodeName, uid: Uid) -> Binding | None:
        """The task with this uid, if `node` is to hold it."""
        return self._bindings.get((node, uid))

    def _put(
        self, node: NodeName, key: TaskKey, task: Desired, workers: frozenset[WorkerName]
    ) -> None:
        tasks = self._by_node.setdefault(node, {})
        before = tasks.get(key)
        if before == task:
            return
        if before is not None and before.uid != task.uid:
            del self._bindings[node, before.uid]
        tasks[key] = task
        self._bindings[node, task.uid] = Binding(key, workers)
        self._notify(node, key, task)

    def _remove(self, node: NodeName, key: TaskKey) -> None:
        tasks = self._by_node[node]
        task = tasks.pop(key)
        del self._bindings[node, task.uid]
        if not tasks:
            del self._by_node[node]
        self._notify(node, key, None)

    def _notify(self, node: NodeName, key: TaskKey, task: Desired | None) -> None:
        for subscriber in self._subscribers:
            subscriber(node, key, task)


def encode(assignment: Assignment) -> Desired | None:
    """None for a body that no frame can carry: one bad task must not end the node's session."""
    body = wire.pack(assignment.body)
    if len(body) > MAX_BODY_BYTES:
        log.error(
            "task too large for its nodes, withdrawn from them",
            task=assignment.key,
            size_bytes=len(body),
            limit_bytes=MAX_BODY_BYTES,
        )
        return None
    return Desired(assignment.uid, assignment.version, body)
