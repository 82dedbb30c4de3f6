"""What a hard sample costs: the time until the cloud's answer is there, and both workers' memory.

The edge worker and the cloud worker are processes of their own on this machine, with the worker SDK
on both sides. Neither estimator computes anything: the figures are those of the way there and back.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from edgeai.worker.big_model_service import BigModelService
from edgeai.worker.hard_example_mining import CloudOnly
from edgeai.worker.joint_inference import JointInference
from edgeai.worker.results import AnsweredBy
from edgeai.worker.tensors import Array
from tests.bench.process import answer_of, start
from tests.bench.spread import spread
from tests.support.processes import memory_kib

HOST: Final = "127.0.0.1"
READY_S: Final = 30.0
WARM_UP: Final = 20  # samples before the measured ones
CASES: Final = [
    # bytes of a sample, callers, samples of each
    (1024, 1, 2000),
    (1024, 8, 250),
    (2**20, 1, 200),
    (2**20, 8, 25),
]


def measure() -> dict[str, Any]:
    """Figures of docs/performance.md, "Workers of joint inference"."""
    with cloud_worker() as (cloud, port):
        address = {"BIG_MODEL_IP": HOST, "BIG_MODEL_PORT": str(port)}
        edge = start("worker_http", "edge", env=os.environ | address)
        return {**answer_of(edge), "cloud": _memory(cloud.pid)}


@contextmanager
def cloud_worker() -> Iterator[tuple["subprocess.Popen[str]", int]]:
    address = {"BIG_MODEL_BIND_IP": HOST, "BIG_MODEL_BIND_PORT": "0"}
    process = start("worker_http", "cloud", env=os.environ | address)
    try:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def _memory(pid: int | str) -> dict[str, float]:
    """MiB of a process: resident now, and at most so far."""
    kib = memory_kib(pid)
    resident, peak = kib["VmRSS"] / 1024, kib["VmHWM"] / 1024
    return {"resident_mib": round(resident, 1), "peak_mib": round(peak, 1)}


# ---- processes ----------------------------------------------------------------------------------


class First:
    """Answers a sample with its first number."""

    def load(self, model_url: str) -> None:
        pass

    def predict(self, batch: Array) -> Array:
        answers: Array = batch[:, 0]
        return answers


def _serve() -> None:
    service = BigModelService(First())
    print(service.address.port, flush=True)
    service.serve()


def _ask() -> None:
    with JointInference(First(), CloudOnly(), is_reporting=False) as joint:
        assert joint.wait_for_cloud(READY_S)
        _case(joint, 1024, 1, WARM_UP)
        figures: dict[str, Any] = {"edge_idle": _memory("self")}
        for size_bytes, callers, count in CASES:
            name = f"ms_of_{size_bytes}_bytes_by_{callers}"
            figures[name] = spread(_case(joint, size_bytes, callers, count))
        figures["edge"] = _memory("self")
    print(json.dumps(figures), flush=True)


def _case(joint: JointInference, size_bytes: int, callers: int, count: int) -> list[float]:
    """Milliseconds that each sample took."""
    took_ms: list[float] = []

    def call() -> None:
        sample = np.ones((1, size_bytes), dtype=np.uint8)
        for _ in range(count):
            started_s = time.perf_counter()
            (result,) = joint.inference(sample)
            took_ms.append((time.perf_counter() - started_s) * 1000)
            assert result.answered_by is AnsweredBy.CLOUD, result.reason

    threads = [threading.Thread(target=call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(took_ms) == callers * count
    return took_ms


if __name__ == "__main__":
    {"cloud": _serve, "edge": _ask}[sys.argv[1]]()
