"""Queues the jobs that name an object after a change of it: a few at a time, namespaces in turn.

Thousands of jobs may name one Model, Dataset, Secret or Node, and a tenant may change his own many
times a second. If all of these jobs entered the queue at once, other jobs and sessions would wait
for them. A job whose own object changes does not come here.

While the jobs of one change still wait, all further changes of the object together cost each job
one more turn: the queue observes a job when it works on it, so only the newest state counts.
"""

import asyncio
from collections import deque
from collections.abc import Hashable, Iterable
from typing import Final

from common.clock import Clock
from edgeai.api.resources import ObjectRef
from edgeai.turns import Turns
from globalmanager.engine.queue import WorkQueue

PAUSE_S: Final = 0.005  # between two slices, at least
MAX_PAUSE_S: Final = 0.05
# The least time from slice to slice, as a multiple of the processor time of the event loop in it.
# So fan-outs use what others leave of half of the loop, however long one job takes.
_SHARE: Final = 2.0


class _Source:
    """A changed object, and jobs of one namespace that name it."""

    def __init__(self, jobs: Iterable[ObjectRef]) -> None:
        self.jobs = deque(jobs)
        self.next_round: tuple[ObjectRef, ...] = ()
        """The jobs that need one more turn, because the object has changed again."""

    def pop(self) -> ObjectRef:
        job = self.jobs.popleft()
        if not self.jobs:
            self.jobs.extend(self.next_round)
            self.next_round = ()
        return job


class FanOut:
    """Holds each pair of object and job twice at most, so its size is bounded by the references.

    Args: jobs_per_slice: most jobs that enter the queue at a time, and most jobs of one namespace
        that wait in the queue when another one enters it. So a job whose own object changed finds
        few jobs of its namespace before it
    """

    def __init__(self, queue: WorkQueue, *, jobs_per_slice: int, clock: Clock) -> None:
        self._queue = queue
        self._jobs_per_slice = jobs_per_slice
        self._clock = clock
        self._sources: dict[tuple[str, Hashable], _Source] = {}
        self._turns: Turns[tuple[str, Hashable]] = Turns()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """The number of jobs that have not entered the queue."""
        return sum(len(source.jobs) for source in self._sources.values())

    def __bool__(self) -> bool:
        return bool(self._sources)

    def changed(self, source: Hashable, jobs: Iterable[ObjectRef]) -> None:
        """Let all `jobs` enter the queue soon, because `source`, which they name, has changed."""
        by_namespace: dict[str, list[ObjectRef]] = {}
        for job in jobs:
            by_namespace.setdefault(job.namespace, []).append(job)
        for namespace, members in by_namespace.items():
            key = (namespace, source)
            if key in self._sources:
                self._sources[key].next_round = tuple(members)
            else:
                self._sources[key] = _Source(members)
                self._turns.push(namespace, key)
        self._wake.set()

    async def run(self) -> None:
        """Give slices of jobs to the queue until this task is cancelled."""
        while True:
            self._wake.clear()
            while self._sources:
                self.give_slice()
                await self._pause()
            await self._wake.wait()

    async def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        start_s, processor_s = loop.time(), self._clock.processor()
        while True:
            await asyncio.sleep(PAUSE_S)
            least_s = _SHARE * (self._clock.processor() - processor_s)
            if loop.time() - start_s >= min(MAX_PAUSE_S, least_s):
                return

    def give_slice(self) -> None:
        """Let the next jobs enter the queue, but none of a namespace of which enough wait there."""
        for _ in range(self._jobs_per_slice):
            if not self._turns:
                return
            namespace, _ = key = self._turns.pop()
            source = self._sources[key]
            if self._queue.waiting(namespace) < self._jobs_per_slice:
                self._queue.add(source.pop())
            if source.jobs:
                self._turns.push(namespace, key)
            else:
                del self._sources[key]
