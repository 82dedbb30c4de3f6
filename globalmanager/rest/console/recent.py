"""The curves of jobs since this GlobalManager knows them, in memory.

A curve has a bounded number of points: when it is full, every second one goes, and the next ones
come half as often. The number of curves is bounded, too: the namespace with most jobs loses its
oldest one.
"""

import asyncio
import math
import time
from array import array
from collections import Counter
from typing import Any, Final

import msgspec

from common.clock import SYSTEM_CLOCK, Clock
from edgeai.api.resources import Object
from edgeai.faults.summary import CURVES, numbers_of
from globalmanager.rest.console.board import SLICE_S, JobCache

SAMPLE_S: Final = 5.0
JOBS: Final = 500
POINTS: Final = 120


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Points of a job's metrics. All series have the same times, Unix seconds, or rounds."""

    now: float
    """By the clock of this process, because the browser's may differ."""
    note: str = ""
    times: list[float] = []
    series: dict[str, list[float | None]] = {}
    is_by_round: bool = False


class _Trace:
    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.times = array("d")
        self.series: dict[str, array[float]] = {}
        self._step_s = SAMPLE_S

    def add(self, now: float, numbers: dict[str, float]) -> None:
        if self.times and now < self.times[-1] + self._step_s:
            return
        if len(self.times) >= POINTS:
            self._step_s *= 2
            self.times = self.times[::2]
            self.series = {key: values[::2] for key, values in self.series.items()}
        for key in sorted(numbers):
            if len(self.series) < CURVES and key not in self.series:
                self.series[key] = array("d", [math.nan] * len(self.times))
        self.times.append(now)
        for key, values in self.series.items():
            values.append(numbers.get(key, math.nan))


class Recent:
    """Args: cache: has the jobs; types: as "<plural>.<group>", of the jobs with curves"""

    def __init__(
        self, cache: JobCache, types: tuple[str, ...], *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._cache = cache
        self._types = types
        self._clock = clock
        self._traces: dict[str, _Trace] = {}  # uid of a job -> its trace

    async def run(self) -> None:
        """Take samples until this task is cancelled."""
        while True:
            await self.sample()
            await asyncio.sleep(SAMPLE_S)

    async def sample(self) -> None:
        """Note the metrics of all jobs, and let other tasks run meanwhile."""
        now, began_s = self._clock.utcnow().timestamp(), time.perf_counter()
        uids: set[str] = set()
        for type_ in self._types:
            for job in self._cache.list(type_):
                uids.add(self._note(job, now))
                if time.perf_counter() - began_s > SLICE_S:
                    await asyncio.sleep(0)
                    began_s = time.perf_counter()
        self._traces = {uid: trace for uid, trace in self._traces.items() if uid in uids}

    def curve(self, job: Object) -> Curve:
        """The metrics of the job so far."""
        now = self._clock.utcnow().timestamp()
        trace = self._traces.get(_uid(job))
        if trace is None:
            return Curve(now=now)
        series = {
            key: [None if math.isnan(value) else value for value in values]
            for key, values in trace.series.items()
        }
        return Curve(now=now, times=list(trace.times), series=series)

    def _note(self, job: Object, now: float) -> str:
        uid, numbers = _uid(job), numbers_of(job.get("status"))
        if not numbers:
            return uid
        trace = self._traces.get(uid)
        if trace is None:
            if len(self._traces) >= JOBS:
                self._forget_one()
            trace = self._traces[uid] = _Trace(str(job["metadata"].get("namespace", "")))
        trace.add(now, numbers)
        return uid

    def _forget_one(self) -> None:
        """The oldest trace of the namespace that has most."""
        counts = Counter(trace.namespace for trace in self._traces.values())
        [(most, _)] = counts.most_common(1)
        del self._traces[
            next(uid for uid, trace in self._traces.items() if trace.namespace == most)
        ]


def _uid(job: Any) -> str:
    return str(job["metadata"].get("uid", ""))
