"""Processor time of plans of TrainingJobs that have settled. No server takes part."""

import statistics
import time
from typing import Final

from globalmanager.kinds.elastic.trainingjob import KIND
from tests.globalmanager.kinds.elastic.world import example, training
from tests.support.world import NOW

WORKERS: Final = (10, 1000)
_ROUNDS: Final = 25


def measure() -> dict[str, float]:
    """Milliseconds of processor time of one plan."""
    return {f"plan_ms_of_{workers}_workers": _plan_ms(workers) for workers in WORKERS}


def _plan_ms(workers: int) -> float:
    job = example(worker={"replicas": workers, "maxReplicas": 1000})
    observed = training(job).observed()
    times = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        KIND.plan(observed, NOW)
        times.append(1000 * (time.process_time() - began))
    return round(statistics.median(times), 1)
