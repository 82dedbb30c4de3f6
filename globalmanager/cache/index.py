"""A many-to-many relation that the engine can read in both directions.

The engine stores here which jobs refer to which objects. When an object changes, the engine finds
the jobs that it must plan again.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)
T = TypeVar("T", bound=Hashable)


class Relation(Generic[S, T]):
    """Sources point to targets. `of` finds the sources of a target. A change costs O(targets of one
    source).
    """

    def __init__(self) -> None:
        self._targets: dict[S, frozenset[T]] = {}
        self._sources: dict[T, set[S]] = {}

    def set(self, source: S, targets: Iterable[T]) -> None:
        """Let `source` point to exactly these targets."""
        new = frozenset(targets)
        old = self._targets.get(source, frozenset())
        for target in old - new:
            self._sources[target].discard(source)
            if not self._sources[target]:
                del self._sources[target]
        for target in new - old:
            self._sources.setdefault(target, set()).add(source)
        if new:
            self._targets[source] = new
        else:
            self._targets.pop(source, None)

    def drop(self, source: S) -> None:
        self.set(source, ())

    def targets(self, source: S) -> frozenset[T]:
        return self._targets.get(source, frozenset())

    def of(self, target: T) -> frozenset[S]:
        """The sources that point to `target`."""
        return frozenset(self._sources.get(target, ()))
