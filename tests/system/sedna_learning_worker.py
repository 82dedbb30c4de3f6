"""The workers of an IncrementalLearningJob with Sedna's library: a model that learns a mean.

    python sedna_learning_worker.py train|eval|inference

Runs where nothing of edgeai is installed. A sample is a line with a number.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("BACKEND_TYPE", "UNKNOWN")  # neither TensorFlow nor PyTorch

from sedna.common.config import BaseConfig, Context
from sedna.core.incremental_learning import IncrementalLearning
from sedna.datasources import TxtDataParse


class Mean:
    def __init__(self, **_options: Any) -> None:
        self.total, self.count = 0.0, 0

    def load(self, model_url: str = "") -> None:
        self.total, self.count = json.loads(Path(model_url).read_text())

    def save(self, model_path: str) -> str:
        Path(model_path).write_text(json.dumps([self.total, self.count]))
        return model_path

    def train(self, train_data: Any, **_options: Any) -> dict[str, list[float]]:
        self.load(os.environ["BASE_MODEL_URL"])
        numbers = [float(sample[0]) for sample in train_data.x]
        self.total, self.count = self.total + sum(numbers), self.count + len(numbers)
        return {"loss": [1.0, 0.5]}

    def evaluate(self, data: Any, model_path: str = "", **_options: Any) -> dict[str, list[float]]:
        self.load(model_path)
        numbers = [float(sample[0]) for sample in data.x]
        distance = abs(self._mean() - sum(numbers) / len(numbers))
        return {"precision": [1 / (1 + distance)]}

    def predict(self, _data: Any, **_options: Any) -> list[float]:
        return [self._mean()]

    def _mean(self) -> float:
        return self.total / max(self.count, 1)


def samples(kind: str, path: str) -> Any:
    parsed = TxtDataParse(kind, func=lambda line: [line])
    parsed.parse(path, use_raw=True)
    return parsed


def main(role: str) -> None:
    if role == "train":
        data = samples("train", BaseConfig.train_dataset_url)
        IncrementalLearning(estimator=Mean).train(train_data=data)
    elif role == "eval":
        data = samples("test", Context.get_parameters("TEST_DATASET_URL"))
        IncrementalLearning(estimator=Mean()).evaluate(data)
    else:
        learning = IncrementalLearning(estimator=Mean())
        while True:
            print(learning.inference([1]), flush=True)
            time.sleep(0.5)


if __name__ == "__main__":
    main(sys.argv[1])
