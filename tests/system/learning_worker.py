"""The workers of an IncrementalLearningJob in tests: a model that learns the mean of its samples.

    python3 -m tests.system.learning_worker train|eval|inference

A sample is a line with a number. The precision of a model is how near its mean is to that of the
samples.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from edgeai.worker import CloudOnly, IncrementalLearning


class Mean:
    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def load(self, model_url: str) -> None:
        self.total, self.count = json.loads(Path(model_url).read_text())

    def save(self, model_url: str) -> None:
        Path(model_url).write_text(json.dumps([self.total, self.count]))

    def train(self, train_data: list[float], **_options: Any) -> dict[str, float]:
        self.total, self.count = self.total + sum(train_data), self.count + len(train_data)
        return {"samples": len(train_data)}

    def evaluate(self, data: list[float], **_options: Any) -> dict[str, float]:
        distance = abs(self.total / max(self.count, 1) - sum(data) / len(data))
        return {"precision": 1 / (1 + distance)}

    def predict(self, batch: Any) -> list[float]:
        return [self.total / max(self.count, 1)] * len(batch)


def samples(variable: str) -> list[float]:
    return [float(line) for line in Path(os.environ[variable]).read_text().split()]


def main(role: str) -> None:
    learning = IncrementalLearning(Mean(), CloudOnly(), model_name="model.json")
    if role == "train":
        learning.train(samples("TRAIN_DATASET_URL"))
    elif role == "eval":
        learning.evaluate(samples("TEST_DATASET_URL"))
    else:
        with learning:
            while True:
                (answer,) = learning.inference(np.zeros((1, 2)))
                print(json.dumps({"answer": answer.answer, "version": answer.model_version}))
                time.sleep(0.2)


if __name__ == "__main__":
    main(sys.argv[1])
