"""Functions that all models of the examples use. They need only NumPy."""

import numpy as np

from edgeai.demo.digits import SIDE, Floats


def flat(images: Floats) -> Floats:
    """Convert images of shape (n, 8, 8) to rows of shape (n, 64)."""
    return images.reshape(len(images), SIDE * SIDE)


def softmax(scores: Floats) -> Floats:
    """Convert scores to probabilities. The sum of each row is 1."""
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: Floats = shifted / shifted.sum(axis=1, keepdims=True)
    return probabilities
