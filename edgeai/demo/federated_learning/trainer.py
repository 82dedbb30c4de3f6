"""A trainer of the example: learns from the images of its node. No image leaves the node.

    python3 -m edgeai.demo.federated_learning.trainer

Besides the environment variables of every trainer, this trainer reads TRAINING_SECONDS (default 0).
The trainer sleeps for this long in each round, to simulate a slow machine.
"""

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from edgeai.demo import digits
from edgeai.demo.digits import Digits
from edgeai.demo.federated_learning.files import held_out_of
from edgeai.demo.federated_learning.model import Perceptron
from edgeai.demo.script import read, run
from edgeai.worker.federated.learning import FederatedLearning


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename=str.upper):
    train_dataset_url: str
    """CSV file of data.py. held_out.csv is in the same directory."""
    training_seconds: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.0


class SlowPerceptron(Perceptron):
    """A Perceptron that needs `seconds` seconds more for each round."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def train(self, *, train_data: Digits, valid_data: Digits | None = None, **_: Any) -> None:
        time.sleep(self._seconds)
        super().train(train_data=train_data, valid_data=valid_data)


def main(environ: Mapping[str, str]) -> None:
    signal.signal(signal.SIGTERM, stop)
    settings = read(environ, Settings)
    file = Path(settings.train_dataset_url)
    learning = FederatedLearning(SlowPerceptron(settings.training_seconds))
    learning.train(digits.load(file), valid_data=digits.load(held_out_of(file)))


def stop(number: int, _frame: Any) -> None:
    raise SystemExit(128 + number)  # an exit code other than 0 makes the kubelet restart the pod


if __name__ == "__main__":
    run(main)
