"""A small model that can be computed by hand. Workers in processes of their own import this
module, so it does not import pytest, which would take longer than all the rest.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgeai.worker.federated.layout import Weights
from edgeai.worker.tensors import Array


class Mean:
    """Learns the mean of its data, all the way in one round: FedAvg gives the mean of all."""

    def __init__(self, start: float = 0.0, size: int = 3) -> None:
        self.weights: dict[str, Array] = {"mean": np.full(size, start, dtype=np.float32)}
        self.trained = 0
        self.saved: list[str] = []

    def load(self, model_url: str) -> None:
        self.weights["mean"] = np.load(model_url)["mean"]

    def train(self, *, train_data: Any, valid_data: Any = None, **_: Any) -> Mapping[str, float]:
        self.trained += 1
        self.weights = {"mean": np.full_like(self.weights["mean"], np.mean(train_data))}
        return {"trained": self.trained}

    def evaluate(self, data: Any, **_: Any) -> Mapping[str, float]:
        return {"error": float(abs(np.mean(data) - self.weights["mean"][0]))}

    def get_weights(self) -> Weights:
        return self.weights

    def set_weights(self, weights: Weights) -> None:
        assert isinstance(weights, Mapping)
        self.weights = dict(weights)

    def save(self, model_url: str) -> None:
        self.saved.append(model_url)
