"""The desired set of each node: all assignments that the node must hold.

`assign` and `forget` change one task at a time. Subscribers hear of each (node, task) that has
changed. All sessions share one encoded body of an assignment. A namespace gets a part of each node
(see quota): a task beyond this part waits here until the part has room.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from common import wire
from common.logs import get_logger
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName
from globalmanager.contract import Assignment, ServicePort
from globalmanager.edge.sessions.cloud_session import Desired
from globalmanager.edge.sessions.quota import Decision, NodeLimits, NodeQuota

log = get_logger(__name__)

# Largest body of an assignment. The rest of a message holds the other fields of the frame Assign.
MAX_BODY_BYTES: Final = wire.MAX_MESSAGE_BYTES - 64 * 1024

Subscriber = Callable[[NodeName, TaskKey, Desired | None], None]
"""Called with (node, task, desired body and version); None: the node must not hold the task."""

_NO_TASKS: Final[Mapping[TaskKey, Desired]] = MappingProxyType({})


class Binding(NamedTuple):
    """A task that a node must hold. Version and generation are those of its assignment."""

    key: TaskKey
    version: int
    generation: int
    workers: frozenset[WorkerName]  # that may report from the node
    former: frozenset[WorkerName] = frozenset()  # those of them that belong to another node now
    targets: frozenset[ServicePort] = frozenset()  # what they may reach through the relay


class _Waiting(NamedTuple):
    """A task that a node does not get yet, and the binding that the node then has."""

    task: Desired
    binding: Binding


class DesiredSets:
    """The desired set of every node. All calls come from the event loop's thread."""

    def __init__(self, limits: NodeLimits = NodeLimits()) -> None:  # noqa: B008 - frozen
        self.limits = limits
        self._quota = NodeQuota(limits)
        self._left_out_subscribers: list[Callable[[NodeName, TaskKey], None]] = []
        self._queue: dict[tuple[NodeName, TaskKey], _Waiting] = {}
        self._by_node: dict[NodeName, dict[TaskKey, Desired]] = {}
        self._bindings: dict[tuple[NodeName, Uid], Binding] = {}
        self._nodes_of: dict[TaskKey, frozenset[NodeName]] = {}
        self._subscribers: list[Subscriber] = []

    @property
    def left_out(self) -> int:
        """Number of pairs of node and task that wait, because the node has too many tasks."""
        return len(self._queue)

    @property
    def nodes(self) -> Collection[NodeName]:
        return self._by_node.keys()

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.append(subscriber)

    def subscribe_left_out(self, subscriber: Callable[[NodeName, TaskKey], None]) -> None:
        """Call `subscriber` for each task that a node does not get, as it has too many."""
        self._left_out_subscribers.append(subscriber)

    def assign(self, key: TaskKey, by_node: Mapping[NodeName, Assignment]) -> None:
        """Replace all assignments of the task `key`: no other node must hold the task."""
        # Assignments that share a body share its encoding.
        encoded: dict[int, Desired | None] = {}
        desired: dict[NodeName, Desired] = {}
        for node, assignment in by_node.items():
            body = id(assignment.body)
            if body not in encoded:
                encoded[body] = encode(assignment)
            if (shared := encoded[body]) is not None:
                desired[node] = shared
        for node in self._nodes_of.get(key, frozenset()) - desired.keys():
            self._give_up(node, key)
        for node, task in desired.items():
            binding = _binding(by_node[node])
            # One pod of a fleet changes the binding of one node in thousands, and no body.
            if self._by_node.get(node, _NO_TASKS).get(key) == task:
                self._bindings[node, task.uid] = binding
            else:
                self._want(node, key, _Waiting(task, binding))
        if desired:
            self._nodes_of[key] = frozenset(desired)
        else:
            self._nodes_of.pop(key, None)

    def forget(self, key: TaskKey) -> None:
        """Remove all assignments of the task, because its job is gone."""
        self.assign(key, {})

    def for_node(self, node: NodeName) -> Mapping[TaskKey, Desired]:
        """The desired set of `node`: a read-only view that shows later changes too."""
        tasks = self._by_node.get(node)
        return _NO_TASKS if tasks is None else MappingProxyType(tasks)

    def binding_of(self, node: NodeName, uid: Uid) -> Binding | None:
        """The task with this uid on `node`. None when `node` must not hold the task."""
        return self._bindings.get((node, uid))

    def _want(self, node: NodeName, key: TaskKey, candidate: "_Waiting") -> None:
        """Let the node get the task, or let the task wait until its namespace has room."""
        decision = self._quota.put(node, key, len(key) + len(candidate.task.body))
        is_held = key in self._by_node.get(node, _NO_TASKS) and key not in decision.left_out
        if is_held or key in decision.admitted:
            self._queue.pop((node, key), None)
            self._put(node, key, *candidate)
        else:
            self._leave_out(node, key, candidate)
        self._carry_out(node, decision)

    def _give_up(self, node: NodeName, key: TaskKey) -> None:
        if self._queue.pop((node, key), None) is None:
            self._remove(node, key)
        self._carry_out(node, self._quota.remove(node, key))

    def _carry_out(self, node: NodeName, decision: Decision) -> None:
        for key in decision.left_out:
            task = self._by_node.get(node, _NO_TASKS).get(key)
            if task is not None:
                self._leave_out(node, key, _Waiting(task, self._bindings[node, task.uid]))
        for key in decision.admitted:
            if (candidate := self._queue.pop((node, key), None)) is not None:
                self._put(node, key, *candidate)

    def _leave_out(self, node: NodeName, key: TaskKey, candidate: "_Waiting") -> None:
        is_new = (node, key) not in self._queue
        self._queue[node, key] = candidate
        if key in self._by_node.get(node, _NO_TASKS):
            self._remove(node, key)
        for subscriber in self._left_out_subscribers if is_new else ():
            subscriber(node, key)

    def _put(self, node: NodeName, key: TaskKey, task: Desired, binding: Binding) -> None:
        tasks = self._by_node.setdefault(node, {})
        before = tasks.get(key)
        if before is not None and before.uid != task.uid:
            del self._bindings[node, before.uid]
        tasks[key] = task
        self._bindings[node, task.uid] = binding
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


def _binding(assignment: Assignment) -> Binding:
    workers = frozenset(assignment.body.workers)
    reporting = workers if assignment.reporting is None else workers & assignment.reporting
    return Binding(
        assignment.key,
        assignment.version,
        assignment.version if assignment.generation is None else assignment.generation,
        reporting,
        assignment.former,
        assignment.targets,
    )


def encode(assignment: Assignment) -> Desired | None:
    """The assignment with its encoded body. None when the body is too large for a message: the node
    still holds its other tasks, because one bad task must not end the session.
    """
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
