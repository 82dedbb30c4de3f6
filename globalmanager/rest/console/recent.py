"""The curves of jobs since this GlobalManager knows them, in memory.

A curve has a bounded number of points: when it is full, every second one goes, and the next ones
come half as often. The number of curves is bounded, too: a new one takes the place of one of the
namespace that has most, or of an ended job of its own namespace. Else the job has no curve.
"""

import asyncio
import math
import time
from array import array
from collections import Counter
from collections.abc import Collection
from typing import Final

import msgspec

from common import logs
from common.clock import SYSTEM_CLOCK, Clock
from edgeai.api.resources import Object, ResourceType
from edgeai.faults.summary import CURVES, numbers_of, phase_of
from globalmanager.cache.store import uid_of
from globalmanager.rest.console.board import SLICE_S, JobCache
from globalmanager.rest.console.rollouts import FleetRollout, GuardView

log = logs.get_logger(__name__)

SAMPLE_S: Final = 5.0
JOBS: Final = 500
POINTS: Final = 120


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Points of a job's metrics. All series have the same times, in seconds, or rounds."""

    now: float
    """By the clock of the times, because the browser's may differ."""
    note: str = ""
    times: list[float] = []
    series: dict[str, list[float | None]] = {}
    is_by_round: bool = False


class _Trace:
    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.times = array("d")
        self.series: dict[str, array[float]] = {}
        self.has_ended = False
        self._step_s = SAMPLE_S

    def add(self, now: float, numbers: dict[str, float], *, has_ended: bool) -> None:
        """Args: has_ended: the job has; the first of these points is the last of the curve"""
        is_early = not has_ended and bool(self.times) and now < self.times[-1] + self._step_s
        if is_early or (self.has_ended and has_ended):
            return
        self.has_ended = has_ended
        if len(self.times) >= POINTS:
            self._step_s *= 2
            self.times = self.times[::2]
            self.series = {key: values[::2] for key, values in self.series.items()}
        for key in sorted(numbers.keys() - self.series.keys()):
            absent = self.series.keys() - numbers.keys()
            if len(self.series) >= CURVES and absent:
                del self.series[min(absent)]
            if len(self.series) < CURVES:
                self.series[key] = array("d", [math.nan] * len(self.times))
        self.times.append(now)
        for key, values in self.series.items():
            values.append(numbers.get(key, math.nan))


class Recent:
    """Args: cache: has the jobs; types: of the jobs with curves"""

    def __init__(
        self, cache: JobCache, types: Collection[ResourceType], *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._cache = cache
        self._types = types
        self._clock = clock
        self._traces: dict[str, _Trace] = {}  # uid of a job, or of its guard -> its trace
        self._full: set[str] = set()  # namespaces without room for a new trace in this sample

    async def run(self) -> None:
        """Take samples until this task is cancelled."""
        while True:
            await self.sample()
            await asyncio.sleep(SAMPLE_S)

    async def sample(self) -> None:
        """Note the metrics of all jobs, and let other tasks run meanwhile."""
        now, began_s = self._clock.elapsed(), time.perf_counter()
        uids: set[str] = set()
        self._full.clear()
        for type_ in self._types:
            for job in self._cache.list(str(type_)):
                uids.add(uid_of(job))
                try:
                    uids |= self._note(type_, job, now)
                except Exception:  # it harms no other job, and not the process
                    log.exception("metrics cannot be read", job=uid_of(job))
                if time.perf_counter() - began_s > SLICE_S:
                    await asyncio.sleep(0)
                    began_s = time.perf_counter()
        self._traces = {uid: trace for uid, trace in self._traces.items() if uid in uids}

    def curve(self, job: Object) -> Curve:
        return self._curve(uid_of(job))

    def guard_curve(self, type_: ResourceType, job: Object) -> Curve:
        """What the guard of its rollout has seen of the version."""
        guard = self._guard(type_, job)
        return self._curve(guard.trace if guard else "")

    def _curve(self, uid: str) -> Curve:
        now = self._clock.elapsed()
        trace = self._traces.get(uid)
        if trace is None:
            return Curve(now=now)
        series = {
            key: [None if math.isnan(value) else value for value in values]
            for key, values in trace.series.items()
        }
        return Curve(now=now, times=list(trace.times), series=series)

    def _note(self, type_: ResourceType, job: Object, now: float) -> set[str]:
        """Returns: the keys of its traces"""
        status, namespace = job.get("status"), str(job["metadata"].get("namespace", ""))
        has_ended = phase_of(status) in ("Succeeded", "Failed")
        entries = [(uid_of(job), numbers_of(status), has_ended)]
        if guard := self._guard(type_, job):
            entries.append((guard.trace, guard.numbers, guard.is_over))
        for uid, numbers, is_over in entries:
            is_new = numbers and not is_over and uid not in self._traces
            if is_new and self._has_room(namespace):
                self._traces[uid] = _Trace(namespace)
            trace = self._traces.get(uid)
            if trace and numbers:
                trace.add(now, numbers, has_ended=is_over)
            elif trace:
                trace.has_ended |= is_over
        return {uid for uid, *_ in entries}

    def _guard(self, type_: ResourceType, job: Object) -> GuardView | None:
        rollout = FleetRollout.of(self._cache, type_, job)
        return rollout.guard() if rollout else None

    def _has_room(self, namespace: str) -> bool:
        """Whether a job of the namespace may have a new trace; another one makes room for it."""
        if len(self._traces) < JOBS or namespace in self._full:
            return namespace not in self._full
        counts = Counter(trace.namespace for trace in self._traces.values())
        [(most, count)] = counts.most_common(1)
        # With a difference of one, two namespaces would take the place from each other for ever.
        is_small = counts[namespace] + 1 < count
        has_ended = {
            uid: trace.has_ended
            for uid, trace in self._traces.items()
            if trace.namespace == (most if is_small else namespace)
            and (is_small or trace.has_ended)
        }
        if not has_ended:
            self._full.add(namespace)
            return False
        del self._traces[max(has_ended, key=has_ended.__getitem__)]  # the oldest one of the ended
        return True
