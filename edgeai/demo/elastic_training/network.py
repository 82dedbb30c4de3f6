"""The network of the example: one hidden layer. All 4810 weights are one vector.

Needs only NumPy. launcher.py holds the weights; worker.py computes gradients.
"""

from typing import Final

import numpy as np

from edgeai.demo.digits import CLASSES, SIDE, Digits, Floats
from edgeai.demo.layers import flat, softmax

HIDDEN: Final = 64
_SHAPES: Final = ((SIDE * SIDE, HIDDEN), (1, HIDDEN), (HIDDEN, CLASSES), (1, CLASSES))
SIZE: Final = sum(rows * columns for rows, columns in _SHAPES)
"""Number of weights."""


def initial() -> Floats:
    """The weights before the first step, the same at every call."""
    random = np.random.default_rng(0)
    parts = [
        random.normal(0, np.sqrt(2 / rows), rows * columns) * (rows > 1)
        for rows, columns in _SHAPES
    ]
    return np.concatenate(parts).astype(np.float32)


def gradient(weights: Floats, digits: Digits) -> tuple[Floats, float]:
    """The gradient and the loss, each as the sum over the images.

    Sums of several workers add up to the sum over all images, however the images are shared.
    """
    _, _, second, _ = _parts(weights)
    rows = flat(digits.images)
    hidden, scores = _scores(weights, rows)
    slope = softmax(scores)
    of_labels = slope[np.arange(len(digits)), digits.labels]
    loss = float(-np.log(np.maximum(of_labels, 1e-9)).sum())
    slope[np.arange(len(digits)), digits.labels] -= 1
    hidden_slope = (slope @ second.T) * (hidden > 0)
    parts = (rows.T @ hidden_slope, hidden_slope.sum(0), hidden.T @ slope, slope.sum(0))
    return np.concatenate([part.ravel() for part in parts]).astype(np.float32), loss


def accuracy(weights: Floats, digits: Digits) -> float:
    """Share of the images, in 0..1, that get the correct label."""
    _, scores = _scores(weights, flat(digits.images))
    return float((scores.argmax(axis=1) == digits.labels).mean())


def _scores(weights: Floats, rows: Floats) -> tuple[Floats, Floats]:
    first, first_bias, second, second_bias = _parts(weights)
    hidden: Floats = np.maximum(rows @ first + first_bias, 0)
    return hidden, hidden @ second + second_bias


def _parts(weights: Floats) -> list[Floats]:
    ends = np.cumsum([rows * columns for rows, columns in _SHAPES])[:-1]
    return [
        part.reshape(shape) for part, shape in zip(np.split(weights, ends), _SHAPES, strict=True)
    ]
