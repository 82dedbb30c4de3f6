"""A many-to-many relation between jobs and other things, which the engine reads in both directions:
when an object changes, it finds the jobs that it must plan again.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from edgeai.api.resources import ObjectRef

T = TypeVar("T", bound=Hashable)


class JobRelation(Generic[T]):
    """Jobs point to targets. A change costs O(targets of one job).

    A scaler is a job resource, so a scaler may take the place of a job here.
    """

    def __init__(self) -> None:
        self._targets: dict[ObjectRef, frozenset[T]] = {}
        # A dict keeps the order of jobs, which a set would not: see `jobs`.
        self._jobs: dict[T, dict[ObjectRef, None]] = {}

    def set(self, job: ObjectRef, targets: Iterable[T]) -> None:
        """Let `job` point to exactly these targets."""
        new = frozenset(targets)
        old = self._targets.get(job, frozenset())
        for target in old - new:
            self._jobs[target].pop(job, None)
            if not self._jobs[target]:
                del self._jobs[target]
        for target in new - old:
            self._jobs.setdefault(target, {})[job] = None
        if new:
            self._targets[job] = new
        else:
            self._targets.pop(job, None)

    def drop(self, job: ObjectRef) -> None:
        self.set(job, ())

    def targets(self, job: ObjectRef) -> frozenset[T]:
        return self._targets.get(job, frozenset())

    def jobs(self, target: T) -> tuple[ObjectRef, ...]:
        """The jobs that point to `target`, each once, in the order in which they began to."""
        return tuple(self._jobs.get(target, ()))
