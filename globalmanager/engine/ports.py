"""What the engine needs of the edge side, and what it tells about itself."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from common.ids import NodeName, TaskKey
from globalmanager.contract import Assignment, Contact


class AssignmentSink(Protocol):
    """Brings to the nodes what they must hold. Both calls return at once and never raise."""

    def assign(self, key: TaskKey, by_node: Mapping[NodeName, Assignment]) -> None:
        """All that is to be held of a task, anywhere; called again with the same most times."""

    def forget(self, key: TaskKey) -> None:
        """The task is no more: nobody holds it. Also called for tasks that were never assigned."""


class ContactBook(Protocol):
    """Knows the sessions. After a change of a node it calls Engine.contact_changed."""

    def contacts(self) -> Mapping[NodeName, Contact]: ...


class Health(msgspec.Struct, frozen=True):
    """Answer of /readyz. `reasons` may name what is amiss without being fatal."""

    ready: bool
    reasons: tuple[str, ...] = ()
