"""The workers of an IncrementalLearningJob in tests: a model that learns the mean of its samples.

    python3 -m tests.system.learning_worker train|eval|inference|sedna-train|sedna-eval

A sample is a line with a number. The precision of a model is how near its mean is to that of the
samples.
"""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from edgeai.worker import CloudOnly, IncrementalLearning

TRIES, TRY_S = 5, 3.0


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


def tell_as_sedna(kind: str, *results: dict[str, Any]) -> None:
    """The one message of a worker with Sedna's library, which names neither process nor round."""
    name = os.environ["WORKER_NAME"]
    head = {"name": name, "namespace": "default", "ownerName": "sedna", "ownerKind": "default"}
    body = {**head, "kind": kind, "status": "completed", "results": results}
    url = f"{os.environ['LC_SERVER']}/sedna/workers/{name}/info"
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    for left in reversed(range(TRIES)):  # as often as the library
        try:
            urllib.request.urlopen(request, timeout=60).read()
            return
        except OSError as error:
            print(repr(error))
            if not left:
                raise
            time.sleep(TRY_S)


def result(path: str, metrics: Any) -> dict[str, Any]:
    url = path.removeprefix(os.environ["DATA_PATH_PREFIX"])
    return {"format": "json", "url": url, "metrics": metrics}


def sedna_train() -> None:
    model, base = Mean(), Path(os.environ["BASE_MODEL_URL"])
    model.load(str(base))
    metrics = model.train(samples("TRAIN_DATASET_URL"))
    base.write_text("[]")  # as the library: it saves into the directory of the base model first
    path = Path(os.environ["MODEL_URL"]) / "model.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    model.save(str(path))
    tell_as_sedna("train", result(str(path), metrics))


def sedna_eval() -> None:
    results = []
    for path in os.environ["MODEL_URLS"].split(";"):
        model = Mean()
        model.load(path)
        precision = model.evaluate(samples("TEST_DATASET_URL"))["precision"]
        results.append(result(path, {"precision": [precision]}))
    tell_as_sedna("eval", *results)


def main(role: str) -> None:
    if role.startswith("sedna-"):
        sedna_train() if role == "sedna-train" else sedna_eval()
        return
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
