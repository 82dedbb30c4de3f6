"""Which of its tasks a node gets: a limit for each namespace, and one for all of them together.

A namespace is a tenant, and the ledger of a node is small. Without these limits one tenant could
fill the ledger, and the node would refuse the tasks of all others. With all tenants together, a
node could hold more tasks than it can name in a Hello, and would never get a session again. Pure:
no I/O, no clock.
"""

import bisect
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from edgeai.ids import NodeName, TaskKey


class NodeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for the tasks on one node."""

    tasks: int = 1000
    """Of one namespace. Ten times the pods that a kubelet runs by default."""
    bytes: int = 8 * 1024 * 1024
    """Of one namespace: keys and bodies."""
    node_tasks: int = 16_000
    """Of all namespaces. While new tasks replace old ones, a node holds up to twice as many, which
    must fit into one Hello (wire.MAX_HELD)."""
    node_bytes: int = 32 * 1024 * 1024
    """Of all namespaces. A ledger has room for 48 MiB of tasks by default, overhead included."""


class Part(NamedTuple):
    """What one namespace may use of the node."""

    tasks: int
    bytes: int


class Decision(NamedTuple):
    """What one change does to the tasks of the node."""

    admitted: list[TaskKey]
    """Tasks that the node gets now, and did not get before."""
    left_out: list[TaskKey]
    """Tasks that the node does not get, and would get without this change."""


class NodeQuota:
    """The tasks of each namespace on each node.

    The node gets the first tasks of a namespace in the order of their keys, as many as the part of
    the namespace allows. While the node has room for all, the part is the limit of one namespace.
    Else each namespace gets an equal part, and what a namespace does not need goes to the others.
    The result does not depend on the order of the changes. So it is the same on every replica and
    after a restart, and a node that changes the replica keeps its tasks.
    """

    def __init__(self, limits: NodeLimits) -> None:
        self._limits = limits
        self._nodes: dict[NodeName, _Node] = {}

    def put(self, node: NodeName, key: TaskKey, size_bytes: int) -> Decision:
        if node not in self._nodes:
            self._nodes[node] = _Node(self._limits)
        return self._nodes[node].put(key, size_bytes)

    def remove(self, node: NodeName, key: TaskKey) -> Decision:
        tasks = self._nodes[node]
        decision = tasks.remove(key)
        if not tasks.tenants:
            del self._nodes[node]
        return decision


class _Node:
    """The tasks of all namespaces on one node."""

    def __init__(self, limits: NodeLimits) -> None:
        self._limits = limits
        self._part = Part(limits.tasks, limits.bytes)
        self._demand = Part(0, 0)  # by all namespaces together, each within its own limit
        self.tenants: dict[str, _Tenant] = {}

    def put(self, key: TaskKey, size_bytes: int) -> Decision:
        namespace = namespace_of(key)
        if namespace not in self.tenants:
            self.tenants[namespace] = _Tenant()
        tenant = self.tenants[namespace]
        before = self._wanted_by(tenant)
        is_added = tenant.put(key, size_bytes)
        self._count(before, self._wanted_by(tenant))
        decision = self._settle(tenant)
        if is_added and key not in decision.left_out:
            decision.admitted.append(key)
        return decision

    def remove(self, key: TaskKey) -> Decision:
        namespace = namespace_of(key)
        tenant = self.tenants[namespace]
        before = self._wanted_by(tenant)
        tenant.remove(key)
        self._count(before, self._wanted_by(tenant))
        decision = self._settle(tenant)
        if not tenant.keys:
            del self.tenants[namespace]
        return decision

    def _wanted_by(self, tenant: "_Tenant") -> Part:
        limits = self._limits
        return Part(min(len(tenant.keys), limits.tasks), min(tenant.bytes, limits.bytes))

    def _count(self, before: Part, after: Part) -> None:
        self._demand = Part(
            self._demand.tasks + after.tasks - before.tasks,
            self._demand.bytes + after.bytes - before.bytes,
        )

    def _settle(self, origin: "_Tenant") -> Decision:
        """Admit and leave out tasks, so that each namespace has its part."""
        part = self._part_of_each()
        is_same = part == self._part
        self._part = part
        decision = Decision([], [])
        for tenant in (origin,) if is_same else self.tenants.values():
            tenant.settle(part, decision)
        return decision

    def _part_of_each(self) -> Part:
        limits, tasks, size_bytes = self._limits, self._limits.tasks, self._limits.bytes
        if self._demand.tasks > limits.node_tasks:
            demands = [self._wanted_by(tenant).tasks for tenant in self.tenants.values()]
            tasks = equal_part(demands, limits.node_tasks)
        if self._demand.bytes > limits.node_bytes:
            demands = [self._wanted_by(tenant).bytes for tenant in self.tenants.values()]
            size_bytes = equal_part(demands, limits.node_bytes)
        return Part(tasks, size_bytes)


def equal_part(demands: Iterable[int], room: int) -> int:
    """The largest equal part with which all parts fit into `room`. A tenant that needs less leaves
    the rest to the others.

    Args: demands: what each wants, in total more than `room`
    """
    rest = sorted(demands, reverse=True)
    while rest[-1] <= room // len(rest):
        room -= rest.pop()
    return room // len(rest)


class _Tenant:
    """The tasks of one namespace on one node."""

    def __init__(self) -> None:
        self.keys: list[TaskKey] = []  # sorted; the node gets the first `admitted` of them
        self.bytes = 0
        self.admitted = 0
        self._sizes: dict[TaskKey, int] = {}
        self._admitted_bytes = 0

    def put(self, key: TaskKey, size_bytes: int) -> bool:
        """Returns: whether the task is new and among those that the node gets"""
        known_bytes = self._sizes.get(key)
        index = bisect.bisect_left(self.keys, key)
        if known_bytes is None:
            self.keys.insert(index, key)
        self._sizes[key] = size_bytes
        is_new_in_front = known_bytes is None and index < self.admitted
        if is_new_in_front:
            self.admitted += 1
        added_bytes = size_bytes - (known_bytes or 0)
        self.bytes += added_bytes
        if index < self.admitted:
            self._admitted_bytes += added_bytes
        return is_new_in_front

    def remove(self, key: TaskKey) -> None:
        index = bisect.bisect_left(self.keys, key)
        del self.keys[index]
        size_bytes = self._sizes.pop(key)
        self.bytes -= size_bytes
        if index < self.admitted:
            self.admitted -= 1
            self._admitted_bytes -= size_bytes

    def settle(self, part: Part, decision: Decision) -> None:
        """Admit as many tasks as the part allows, and add the changes to `decision`."""
        while self.admitted > part.tasks or self._admitted_bytes > part.bytes:
            self.admitted -= 1
            key = self.keys[self.admitted]
            self._admitted_bytes -= self._sizes[key]
            decision.left_out.append(key)
        while self.admitted < min(len(self.keys), part.tasks):
            key = self.keys[self.admitted]
            if self._admitted_bytes + self._sizes[key] > part.bytes:
                break
            self.admitted += 1
            self._admitted_bytes += self._sizes[key]
            decision.admitted.append(key)


def namespace_of(key: TaskKey) -> str:
    return key.split("/", 2)[1]
