"""How much of a node one namespace may use: which of its tasks the node gets.

DesiredSets calls this module. A namespace is a tenant, and the ledger of a node is small. Without
these limits one tenant could fill the ledger, and the node would refuse the tasks of all others.
Pure: no I/O, no clock.
"""

import bisect
from typing import NamedTuple

import msgspec

from common.ids import NodeName, TaskKey


class NodeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for the tasks of one namespace on one node."""

    tasks: int = 1000
    """Ten times the pods that a kubelet runs by default."""
    bytes: int = 8 * 1024 * 1024
    """Of keys and bodies. A ledger has room for 48 MiB of tasks by default."""


class Decision(NamedTuple):
    """What one change does to the tasks of the namespace."""

    admitted: list[TaskKey]
    """Tasks that the node gets now, and did not get before."""
    left_out: list[TaskKey]
    """Tasks that the node does not get, and would get without this change."""


class NodeQuota:
    """The tasks of each namespace on each node.

    The node gets the first tasks of the namespace in the order of their keys, as many as the limits
    allow. The order is the same on every replica and after a restart, so a node that changes the
    replica keeps its tasks.
    """

    def __init__(self, limits: NodeLimits) -> None:
        self._limits = limits
        self._tenants: dict[tuple[NodeName, str], _Tenant] = {}
        self._left_out = 0

    @property
    def left_out(self) -> int:
        """Number of pairs of node and task that the limits leave out."""
        return self._left_out

    def put(self, node: NodeName, key: TaskKey, size_bytes: int) -> Decision:
        """Add the task, or change its size."""
        of = node, namespace_of(key)
        tenant = self._tenants.get(of)
        if tenant is None:
            tenant = self._tenants[of] = _Tenant(self._limits)
        return self._count(tenant, tenant.put(key, size_bytes))

    def remove(self, node: NodeName, key: TaskKey) -> Decision:
        """Remove a task that `put` has added."""
        of = node, namespace_of(key)
        tenant = self._tenants[of]
        decision = self._count(tenant, tenant.remove(key))
        if not tenant.keys:
            del self._tenants[of]
        return decision

    def _count(self, tenant: "_Tenant", decision: Decision) -> Decision:
        waiting = len(tenant.keys) - tenant.admitted
        self._left_out += waiting - tenant.counted_left_out
        tenant.counted_left_out = waiting
        return decision


class _Tenant:
    """The tasks of one namespace on one node."""

    def __init__(self, limits: NodeLimits) -> None:
        self._limits = limits
        self.keys: list[TaskKey] = []  # sorted; the node gets the first `admitted` of them
        self.admitted = 0
        self.counted_left_out = 0
        self._sizes: dict[TaskKey, int] = {}
        self._admitted_bytes = 0

    def put(self, key: TaskKey, size_bytes: int) -> Decision:
        known_bytes = self._sizes.get(key)
        index = bisect.bisect_left(self.keys, key)
        if known_bytes is None:
            self.keys.insert(index, key)
        self._sizes[key] = size_bytes
        is_new_in_front = known_bytes is None and index < self.admitted
        if is_new_in_front:
            self.admitted += 1
        if index < self.admitted:
            self._admitted_bytes += size_bytes - (known_bytes or 0)
        decision = self._settle()
        if is_new_in_front and key not in decision.left_out:
            decision.admitted.append(key)
        return decision

    def remove(self, key: TaskKey) -> Decision:
        index = bisect.bisect_left(self.keys, key)
        del self.keys[index]
        size_bytes = self._sizes.pop(key)
        if index < self.admitted:
            self.admitted -= 1
            self._admitted_bytes -= size_bytes
        return self._settle()

    def _settle(self) -> Decision:
        decision = Decision([], [])
        while self.admitted > self._limits.tasks or self._admitted_bytes > self._limits.bytes:
            self.admitted -= 1
            key = self.keys[self.admitted]
            self._admitted_bytes -= self._sizes[key]
            decision.left_out.append(key)
        while self.admitted < min(len(self.keys), self._limits.tasks):
            key = self.keys[self.admitted]
            if self._admitted_bytes + self._sizes[key] > self._limits.bytes:
                break
            self.admitted += 1
            self._admitted_bytes += self._sizes[key]
            decision.admitted.append(key)
        return decision


def namespace_of(key: TaskKey) -> str:
    return key.split("/", 2)[1]
