"""A worker in a process of its own, to be killed: `python -m tests.edgeai.worker.federated.worker`.

Arguments: `aggregator ROUNDS PARTICIPANTS MINIMUM`, or `trainer SECONDS NUMBER…`, the time that
training takes and the data. `ending-aggregator METHOD …` and `ending-trainer METHOD NUMBER…` end
themselves by SIGKILL when that method of the estimator is called; `failing-trainer NUMBER…` cannot
save the result; `frail-trainer SECONDS NUMBER…` fails once. The environment is that of a
FederatedLearningJob's workers.
"""

import errno
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgeai.worker.federated.layout import Weights
from edgeai.worker.federated.learning import FederatedLearning
from edgeai.worker.federated.rounds import RoundSettings
from edgeai.worker.federated.server import AggregationServer
from tests.edgeai.worker.federated.mean import Mean


class SlowMean(Mean):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def train(self, **data: Any) -> Mapping[str, float]:
        time.sleep(self._seconds)  # the training
        return super().train(**data)


class Ending(Mean):
    """Its process is killed in one of the steps of saving."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method

    def set_weights(self, weights: Weights) -> None:
        self._end("set_weights")
        super().set_weights(weights)

    def save(self, model_url: str) -> None:
        Path(model_url).write_bytes(b"half of a model")
        self._end("save")

    def _end(self, method: str) -> None:
        if method == self._method:
            os.kill(os.getpid(), signal.SIGKILL)


class Failing(Mean):
    """Cannot save what it has learned."""

    def save(self, model_url: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


class Frail(SlowMean):
    """Fails in the first round of its worker's first process."""

    def train(self, **data: Any) -> Mapping[str, float]:
        failed_before = Path(f"{os.environ['MODEL_URL']}.{os.environ['WORKER_NAME']}.failed")
        if not failed_before.exists():
            failed_before.touch()
            raise RuntimeError("this happens once")
        return super().train(**data)


def aggregate(estimator: Mean | None, *arguments: str) -> None:
    rounds, participants, least, *limit = map(int, arguments)
    for max_bytes in limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))
    settings = RoundSettings(
        rounds=rounds,
        expected_participants=participants,
        min_participants=least,
        gone_after_s=float(os.environ.get("GONE_AFTER_S", "2")),
    )
    linger_s = float(os.environ.get("LINGER_S", "300"))
    AggregationServer(estimator=estimator, settings=settings, linger_s=linger_s).serve()


def train(estimator: Mean, *data: str) -> None:
    numbers = [float(each) for each in data]
    FederatedLearning(estimator).train(numbers, valid_data=numbers)


def main(role: str, *arguments: str) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    match role:
        case "aggregator":
            aggregate(None, *arguments)
        case "ending-aggregator":
            aggregate(Ending(arguments[0]), *arguments[1:])
        case "trainer":
            train(SlowMean(float(arguments[0])), *arguments[1:])
        case "ending-trainer":
            train(Ending(arguments[0]), *arguments[1:])
        case "failing-trainer":
            train(Failing(), *arguments)
        case "frail-trainer":
            train(Frail(float(arguments[0])), *arguments[1:])


if __name__ == "__main__":
    main(*sys.argv[1:])
