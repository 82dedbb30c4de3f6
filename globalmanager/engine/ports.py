"""What the engine needs of the edge's side, which it does not import."""

from collections.abc import Mapping
from typing import Protocol

from common.ids import NodeName, TaskKey
from globalmanager.contract import Assignment


class AssignmentSink(Protocol):
    """Brings to the nodes what they must hold; `edge.sessions.downstream` does.

    Both calls return at once and never raise.
    """

    def assign(self, key: TaskKey, by_node: Mapping[NodeName, Assignment]) -> None:
        """All that is to be held of a task, anywhere; called again with the same most times."""

    def forget(self, key: TaskKey) -> None:
        """The task is no more: nobody holds it. Also called for tasks that were never assigned."""
