"""What a round of federated learning costs: seconds, bytes and the aggregator's memory.

The aggregator and each trainer are processes of their own on this machine. Training is left out:
a trainer answers with what it got, plus one, so what is measured is the way of the weights.

One case is measured beside a copy of the same bytes over loopback, and beside Flower, where FLOWER
names a Python that has it; and once more while a busy process for each core wants the machine for
itself. Of a noisy machine the processor seconds say more than the others.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from edgeai.worker.federated.aggregator import RoundResult
from edgeai.worker.federated.layout import Weights
from edgeai.worker.federated.learning import FederatedLearning
from edgeai.worker.federated.rounds import RoundSettings
from edgeai.worker.federated.server import AggregationServer
from tests.bench import loopback
from tests.bench.loopback import mean_step
from tests.bench.process import DEADLINE_S, answer_of, start
from tests.support.ports import free_port
from tests.support.processes import memory_kib

CASES: Final = [(10**7, 8), (10**8, 8)]
ROUNDS: Final = 3
HOST: Final = "127.0.0.1"
SECRET: Final = "bench"
FLOWER: Final = "EDGEAI_BENCH_FLOWER"
FLOWER_PROGRAM: Final = Path(__file__).with_name("flower.py")
SIDE_BY_SIDE: Final = (10**7, 8)
SIDE_BY_SIDE_ROUNDS: Final = 7
BUSY: Final = [sys.executable, "-c", "while True: pass"]
JSON_NUMBERS: Final = 10**6


def measure() -> dict[str, Any]:
    """Figures of docs/performance.md, "Federated learning"."""
    return {
        "rounds": [_case(parameters, trainers) for parameters, trainers in CASES],
        "side_by_side": side_by_side(),
        "json_bytes_per_parameter": _json_bytes(),
    }


def side_by_side() -> dict[str, Any]:
    """The same bytes copied, and the same federation here and with Flower, in turn."""
    parameters, trainers = SIDE_BY_SIDE
    figures: dict[str, Any] = {}
    for name, busy in (("alone", 0), ("beside_busy_processes", os.cpu_count() or 1)):
        with _ended(*(subprocess.Popen(BUSY) for _ in range(busy))):
            copy = _copy(parameters, trainers)
            edgeai = _case(parameters, trainers, rounds=SIDE_BY_SIDE_ROUNDS)
            figures[name] = {
                "copy": copy,
                "edgeai": edgeai,
                "rounds_for_copies": {key: _ratio(edgeai[key], copy[key]) for key in copy},
                "flower": _flower(parameters, trainers),
            }
    return figures


def _copy(parameters: int, trainers: int) -> dict[str, Any]:
    seconds, processor_s = loopback.costs(parameters, trainers, SIDE_BY_SIDE_ROUNDS)
    return _costs(seconds, processor_s)


def _costs(seconds: list[float], processor_s: float) -> dict[str, Any]:
    return {
        "seconds_per_round": [round(each, 3) for each in seconds],
        "processor_seconds_per_round": round(processor_s, 3),
    }


def _ratio(numerator: float | list[float], denominator: float | list[float]) -> float:
    """Of two figures, or of the medians of two lists of them."""
    above, below = (
        statistics.median(each) if isinstance(each, list) else each
        for each in (numerator, denominator)
    )
    return round(above / below, 2)


@contextmanager
def _ended(*processes: "subprocess.Popen[Any]") -> Iterator[None]:
    """At the end they are killed: one that failed leaves the others waiting for ever."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _flower(parameters: int, trainers: int) -> dict[str, Any]:
    python = os.environ.get(FLOWER, "")
    if not python:
        return {"unavailable": f"{FLOWER} names no Python that has flwr"}
    address = f"{HOST}:{free_port()}"
    command = [python, str(FLOWER_PROGRAM)]
    commands = [
        [*command, "aggregator", address, str(trainers), str(ROUNDS)],
        *[[*command, "trainer", address, str(parameters)]] * trainers,
    ]
    with tempfile.TemporaryFile("w+") as log:
        processes = [
            subprocess.Popen(each, stdout=subprocess.PIPE, stderr=log, text=True)
            for each in commands
        ]
        with _ended(*processes):
            told = processes[0].communicate(timeout=DEADLINE_S)[0]
        if processes[0].returncode:
            log.seek(0)
            return {"failed": log.read()[-1000:]}
    seconds, peak_kib = json.loads(told)
    return {
        "seconds_per_round": [round(each, 2) for each in seconds],
        "aggregator_peak_mib": round(peak_kib / 1024, 1),
    }


def _case(parameters: int, trainers: int, *, rounds: int = ROUNDS) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="edgeai-bench-") as directory:
        aggregator = start("federated", "aggregator", directory, trainers, rounds)
        with _ended(aggregator):
            assert aggregator.stdout is not None
            port = int(aggregator.stdout.readline())
            workers = [
                start("federated", "trainer", number, port, parameters, rounds)
                for number in range(trainers)
            ]
            with _ended(*workers):
                told = [answer_of(worker) for worker in workers]
            seconds, processor_s, peak_kib = answer_of(aggregator)
    # One of the trainers has also sent the weights that all started from.
    sent = min(each["sent"] for each in told)
    return {
        "parameters": parameters,
        "trainers": trainers,
        **_costs(seconds, processor_s + sum(each["processor_s"] for each in told)),
        "aggregator_peak_mib": round(peak_kib / 1024, 1),
        "bytes_per_parameter_up": round(sent / parameters / rounds, 3),
        "bytes_per_parameter_down": round(told[0]["received"] / parameters / (rounds + 1), 3),
        "trainer_peak_mib": round(max(each["peak_kib"] for each in told) / 1024, 1),
    }


def _json_bytes() -> float:
    """A parameter as text, which is what Sedna sends."""
    vector = np.random.default_rng(0).normal(size=JSON_NUMBERS).astype(np.float32)
    return round(len(json.dumps([float(number) for number in vector])) / JSON_NUMBERS, 1)


# ---- processes ----------------------------------------------------------------------------------


class Plain:
    """Weights of so many numbers; training adds one to each."""

    def __init__(self, parameters: int, rounds: int) -> None:
        self._weights = np.zeros(parameters, dtype=np.float32)
        self._rounds = rounds
        self.processor_s: list[float] = []  # when each training begins

    def load(self, model_url: str) -> None:
        raise NotImplementedError(model_url)

    def train(self, *, train_data: Any, valid_data: Any = None, **_: Any) -> None:
        self.processor_s.append(time.process_time())
        self._weights += 1

    def evaluate(self, data: Any, **_: Any) -> Mapping[str, float]:
        return {}

    def get_weights(self) -> Weights:
        return [self._weights]

    def set_weights(self, weights: Any) -> None:
        (self._weights,) = weights

    def save(self, model_url: str) -> None:
        assert float(self._weights[0]) == self._rounds


def _aggregate(directory: str, trainers: str, rounds: str) -> None:
    _environment(WORKER_NAME="aggregator", FEDERATION_STATE_DIR=f"{directory}/state")
    ends: list[float] = []
    processor_s: list[float] = []

    def note(_result: RoundResult) -> bool:
        ends.append(time.monotonic())
        processor_s.append(time.process_time())
        return False

    server = AggregationServer(
        settings=RoundSettings(
            rounds=int(rounds),
            expected_participants=int(trainers),
            min_participants=int(trainers),
        ),
        stop_when=note,
    )
    print(server.address.port, flush=True)
    server.serve()
    # The first round has no beginning of its own: trainers join and seed before it.
    seconds = [after - before for before, after in itertools.pairwise(ends)]
    print(json.dumps([seconds, mean_step(processor_s), memory_kib()["VmHWM"]]), flush=True)


def _train(number: str, port: str, parameters: str, rounds: str) -> None:
    _environment(WORKER_NAME=f"trainer-{number}", AGG_IP=HOST, AGG_PORT=port, MODEL_URL="nowhere")
    estimator = Plain(int(parameters), int(rounds))
    learning = FederatedLearning(estimator)
    learning.train([0])
    sent, received = learning.transferred_bytes
    told = {
        "sent": sent,
        "received": received,
        "processor_s": mean_step(estimator.processor_s),
        "peak_kib": memory_kib()["VmHWM"],
    }
    print(json.dumps(told), flush=True)


def _environment(**variables: str) -> None:
    os.environ.update(
        {"JOB_SECRET": SECRET, "AGG_BIND_IP": HOST, "AGG_BIND_PORT": "0", **variables}
    )


if __name__ == "__main__":
    role = _aggregate if sys.argv[1] == "aggregator" else _train
    role(*sys.argv[2:])
