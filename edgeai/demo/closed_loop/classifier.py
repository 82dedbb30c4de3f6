"""The edge model of the example: softmax regression on the image, trained with NumPy alone."""

from pathlib import Path
from typing import Final

import numpy as np

from edgeai.demo.digits import CLASSES, SIDE, Digits, Floats
from edgeai.demo.layers import flat, softmax

STEPS: Final = 1000
STEP_SIZE: Final = 1.0
DECAY: Final = 0.001


class Classifier:
    """650 weights, in a .npz file of arrays without pickle."""

    def load(self, model_url: str) -> None:
        with np.load(Path(model_url), allow_pickle=False) as arrays:
            self._weights, self._bias = arrays["weights"], arrays["bias"]

    def predict(self, batch: Floats) -> Floats:
        """(n, 8, 8) images to (n, 10) probabilities."""
        return softmax(flat(batch) @ self._weights + self._bias)


def train(path: Path, data: Digits) -> None:
    """Write the model that has learned `data`. Raises: OSError"""
    pixels, truth = flat(data.images), np.eye(CLASSES)[data.labels]
    weights, bias = np.zeros((SIDE * SIDE, CLASSES)), np.zeros(CLASSES)
    for _ in range(STEPS):
        scores = (pixels @ weights + bias).astype(np.float32)
        slope = (softmax(scores) - truth) / len(data)
        weights -= STEP_SIZE * (pixels.T @ slope + DECAY * weights)
        bias -= STEP_SIZE * slope.sum(axis=0)
    save(path, weights.astype(np.float32), bias.astype(np.float32))


def save(path: Path, weights: Floats, bias: Floats) -> None:
    np.savez(path, weights=weights, bias=bias)


def accuracy(path: Path, data: Digits) -> float:
    model = Classifier()
    model.load(str(path))
    return float((model.predict(data.images).argmax(axis=1) == data.labels).mean())
