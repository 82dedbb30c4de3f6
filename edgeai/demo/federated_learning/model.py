"""The estimator of the example: a perceptron with one hidden layer and 2410 weights.

The estimator needs only NumPy. trainer.py trains this model on each node. compare.py trains the
same model on the images of one node alone, and on all images.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from edgeai.demo.digits import CLASSES, SIDE, Digits, Floats
from edgeai.demo.layers import flat, softmax

HIDDEN: Final = 32
EPOCHS: Final = 2
BATCH: Final = 32
LEARNING_RATE: Final = 0.2
DECAY: Final = 0.2
"""The learning rate of round r is LEARNING_RATE / (1 + DECAY * r)."""
SEED: Final = 0

Weights = dict[str, Floats]


class Perceptron:
    """A perceptron with the methods of edgeai.worker.federated.FederatedEstimator."""

    def __init__(self) -> None:
        self._weights = initial()
        self._random = np.random.default_rng(SEED)
        self._round = 0

    def begin_round(self, number: int, weights: Mapping[str, Floats]) -> None:
        """The learning rate gets smaller from round to round, so that nodes with different digits
        agree at the end.
        """
        self._round = number

    def train(self, *, train_data: Digits, valid_data: Digits | None = None, **_: Any) -> None:
        """Train the model by stochastic gradient descent on the cross entropy."""
        rate = LEARNING_RATE / (1 + DECAY * self._round)
        for _epoch in range(EPOCHS):
            order = self._random.permutation(len(train_data))
            for start in range(0, len(order), BATCH):
                self._step(train_data, order[start : start + BATCH], rate)

    def evaluate(self, data: Digits, **_: Any) -> dict[str, float]:
        return {"accuracy": self.accuracy(data)}

    def accuracy(self, data: Digits) -> float:
        """Share of the images, in 0..1, that get the correct label."""
        scores, _ = self._scores(flat(data.images))
        return float((scores.argmax(axis=1) == data.labels).mean())

    def get_weights(self) -> Weights:
        return {name: array.copy() for name, array in self._weights.items()}

    def set_weights(self, weights: Mapping[str, Floats]) -> None:
        self._weights = {name: array.copy() for name, array in weights.items()}

    def load(self, model_url: str) -> None:
        """Read the weights from a file. Raises: OSError, ValueError"""
        with np.load(Path(model_url), allow_pickle=False) as arrays:
            self.set_weights({name: arrays[name] for name in arrays})

    def save(self, model_url: str) -> None:
        """Atomically: nodes may share the file system, and no reader gets a part of a model."""
        path = Path(model_url)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        with temporary.open("wb") as file:
            np.savez(file, **self._weights)  # type: ignore[arg-type]  # names are the arrays'
        temporary.replace(path)

    def _scores(self, rows: Floats) -> tuple[Floats, Floats]:
        """The score of each class, and the values of the hidden layer, for each row."""
        weights = self._weights
        hidden: Floats = np.maximum(rows @ weights["hidden"] + weights["hidden_bias"], 0)
        scores: Floats = hidden @ weights["output"] + weights["output_bias"]
        return scores, hidden

    def _step(self, data: Digits, chosen: Any, rate: float) -> None:
        rows, labels = flat(data.images[chosen]), data.labels[chosen]
        scores, hidden = self._scores(rows)
        slope = softmax(scores)
        slope[np.arange(len(labels)), labels] -= 1
        slope /= len(labels)
        hidden_slope = (slope @ self._weights["output"].T) * (hidden > 0)
        gradients = {
            "hidden": rows.T @ hidden_slope,
            "hidden_bias": hidden_slope.sum(axis=0),
            "output": hidden.T @ slope,
            "output_bias": slope.sum(axis=0),
        }
        for name, gradient in gradients.items():
            self._weights[name] -= (rate * gradient).astype(np.float32)


def initial() -> Weights:
    """The initial weights, which are the same for every trainer."""
    random = np.random.default_rng(SEED)

    def drawn(rows: int, columns: int) -> Floats:
        return random.normal(0, np.sqrt(2 / rows), (rows, columns)).astype(np.float32)

    return {
        "hidden": drawn(SIDE * SIDE, HIDDEN),
        "hidden_bias": np.zeros(HIDDEN, dtype=np.float32),
        "output": drawn(HIDDEN, CLASSES),
        "output_bias": np.zeros(CLASSES, dtype=np.float32),
    }
