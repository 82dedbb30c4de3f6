"""What the models of the examples have in common, in NumPy alone."""

import numpy as np

from examples.digits import SIDE, Floats


def flat(images: Floats) -> Floats:
    """(n, 8, 8) images to (n, 64) rows."""
    return images.reshape(len(images), SIDE * SIDE)


def softmax(scores: Floats) -> Floats:
    """Probabilities: each row sums to 1."""
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: Floats = shifted / shifted.sum(axis=1, keepdims=True)
    return probabilities
