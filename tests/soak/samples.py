"""Memory and open files of processes over time, and how fast they grow."""

import os
import statistics
import time
from collections import defaultdict
from itertools import combinations
from typing import Final, NamedTuple

from tests.support.processes import memory_kib

MINUTE_S: Final = 60.0
LEAST_SAMPLES: Final = 8


class Sample(NamedTuple):
    at_s: float
    resident_kib: float
    files: int
    """Open files without the sockets of sessions."""
    objects: int = 0
    """Jobs, children and pods that there were, of which replicas have caches."""


class Samples:
    """Of processes by name and pid: a program that was killed and started again is another."""

    def __init__(self) -> None:
        self._of: defaultdict[tuple[str, int], list[Sample]] = defaultdict(list)

    def take(self, name: str, pid: int, *, sessions: int = 0, objects: int = 0) -> None:
        """Raises: OSError, where the process has ended"""
        files = len(os.listdir(f"/proc/{pid}/fd")) - sessions
        memory = memory_kib(pid)
        if not memory:
            raise ProcessLookupError(pid)  # it has ended, and its parent has not looked yet
        self._of[name, pid].append(Sample(time.monotonic(), memory["VmRSS"], files, objects))

    def growth(self, since_s: float, until_s: float) -> dict[str, dict[str, float]]:
        """Of each process that lived from `since_s` to `until_s`, on the monotonic clock."""
        found = {}
        for (name, _), samples in self._of.items():
            if samples[0].at_s > since_s or samples[-1].at_s < until_s:
                continue
            chosen = [each for each in samples if since_s <= each.at_s <= until_s]
            if len(chosen) >= LEAST_SAMPLES:
                found[name] = _growth(chosen)
        return found


def _growth(samples: list[Sample]) -> dict[str, float]:
    half = len(samples) // 2
    quarters = (samples[:half], samples[half:])
    files = [statistics.median(each.files for each in quarter) for quarter in quarters]
    objects = [statistics.median(each.objects for each in quarter) for quarter in quarters]
    return {
        "kib_per_minute": round(MINUTE_S * _slope(samples), 1),
        "open_files_more": round(files[1] - files[0]),
        # Replicas hold all objects. Where these become more, the garbage collector of the cluster
        # is behind, and the growth is not the replica's own.
        "objects_more": round(objects[1] - objects[0]),
    }


def _slope(samples: list[Sample]) -> float:
    """KiB a second: the median of the slopes between any two samples (Theil, 1950), so that a
    moment of much work counts for little.
    """
    return statistics.median(
        (later.resident_kib - earlier.resident_kib) / (later.at_s - earlier.at_s)
        for earlier, later in combinations(samples, 2)
    )
