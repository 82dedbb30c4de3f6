"""What a hard sample costs: the time until the cloud's answer is there.

The edge worker and the cloud worker are processes of their own on this machine, with the worker SDK
on both sides. Neither estimator computes anything: the figures are those of the way there and back.
"""

import json
import os
import sys
import threading
import time
from typing import Any, Final

import numpy as np

from edgeai.worker.big_model_service import BigModelService
from edgeai.worker.hard_example_mining import CloudOnly
from edgeai.worker.joint_inference import JointInference
from edgeai.worker.results import AnsweredBy
from edgeai.worker.tensors import Array
from tests.bench.process import answer_of, start
from tests.bench.spread import spread

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
    address = {"BIG_MODEL_BIND_IP": HOST, "BIG_MODEL_BIND_PORT": "0"}
    cloud = start("worker_http", "cloud", env=os.environ | address)
    try:
        assert cloud.stdout is not None
        address = {"BIG_MODEL_IP": HOST, "BIG_MODEL_PORT": cloud.stdout.readline().strip()}
        return dict(answer_of(start("worker_http", "edge", env=os.environ | address)))
    finally:
        cloud.kill()
        cloud.communicate()


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
        figures = {
            f"ms_of_{size}_bytes_by_{callers}": spread(_case(joint, size, callers, count))
            for size, callers, count in CASES
        }
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
