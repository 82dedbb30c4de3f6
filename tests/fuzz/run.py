"""Runs a target: its seeds first, then inputs made of them, for a time or for a number of them."""

import hashlib
import time
import traceback
from pathlib import Path
from typing import Final, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.inputs import seeds
from tests.fuzz.targets import Target

_BATCH: Final = 100  # inputs between two looks at the clock


class Crash(NamedTuple):
    data: bytes
    """The smallest input that was found to break it."""
    text: str


class Outcome(NamedTuple):
    inputs: int
    crash: Crash | None


def run(target: Target, *, seconds: float = 0.0, batches: int = 0, first: int = 0) -> Outcome:
    """Until the first crash, the end of the time, or so many batches.

    Args: first: the number of the first batch; the same number gives the same inputs
    """
    count = 0
    for data in seeds(target.name):
        count += 1
        crash = _crash_of(target, data)
        if crash is not None:
            return Outcome(count, crash)
    deadline = time.monotonic() + seconds
    batch = 0
    while batch < batches or time.monotonic() < deadline:
        crash = _run_batch(target, first + batch)
        batch, count = batch + 1, count + _BATCH
        if crash is not None:
            return Outcome(count, crash)
    return Outcome(count, None)


def _crash_of(target: Target, data: bytes) -> Crash | None:
    try:
        target.check(data)
    except Exception:  # noqa: BLE001 - whatever it is, it is told
        return Crash(data, traceback.format_exc())
    return None


def _run_batch(target: Target, number: int) -> Crash | None:
    last = [b""]

    @seed(number)
    @settings(
        max_examples=_BATCH,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(target.inputs)
    def check(data: bytes) -> None:
        last[0] = data
        target.check(data)

    try:
        check()
    except Exception:  # noqa: BLE001 - as above
        return Crash(last[0], traceback.format_exc())  # Hypothesis ends with the smallest one
    return None


def keep(crash: Crash, folder: Path) -> Path:
    """Write the input and what it did. Returns: the file of the input"""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(crash.data).hexdigest()[:16]
    path.write_bytes(crash.data)
    path.with_suffix(".txt").write_text(crash.text)
    return path
