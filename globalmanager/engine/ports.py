"""The interface through which the engine gives assignments to the edge side of the GlobalManager.

The engine imports no module of the edge side. The engine knows the edge side by this protocol only.
"""

from collections.abc import Mapping
from typing import Protocol

from edgeai.ids import NodeName, TaskKey
from globalmanager.contract import Assignment


class AssignmentSink(Protocol):
    """Takes the assignments of all nodes. `edge.sessions.desired_sets` implements this interface.

    Both methods return at once and never raise.
    """

    def assign(self, key: TaskKey, by_node: Mapping[NodeName, Assignment]) -> None:
        """Replace all assignments of one task. In most calls the assignments are the same as
        before.
        """

    def forget(self, key: TaskKey) -> None:
        """Remove all assignments of one task. The task may have no assignment."""
