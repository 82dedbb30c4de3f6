"""The two estimators of the example. They need only NumPy, so workers need no ML framework.

train.py trains the models. edge_worker.py and cloud_worker.py run the models. Both models answer
with a vector of ten class probabilities for each image. A model file is a .npz file of arrays,
without pickle.
"""

from pathlib import Path
from typing import Final

import numpy as np

from edgeai.demo.digits import SIDE, Floats
from edgeai.demo.layers import flat, softmax

COARSE_SIDE: Final = 4  # the edge model reduces each image to 4x4 pixels


class EdgeModel:
    """Softmax regression on the image, reduced to 4x4 pixels.

    The model has 330 weights and answers in a few microseconds.
    """

    def load(self, model_url: str) -> None:
        with np.load(Path(model_url), allow_pickle=False) as arrays:
            self._weights, self._bias = arrays["weights"], arrays["bias"]

    def predict(self, batch: Floats) -> Floats:
        """(n, 8, 8) images to (n, 10) probabilities."""
        return softmax(coarse_features(batch) @ self._weights + self._bias)


class CloudModel:
    """Kernel ridge regression with a Gaussian kernel on the whole image.

    The model keeps every training image, so it is a hundred times larger and slower than the
    edge model.
    """

    def load(self, model_url: str) -> None:
        with np.load(Path(model_url), allow_pickle=False) as arrays:
            self._anchors, self._weights = arrays["anchors"], arrays["weights"]
            self._gamma = float(arrays["gamma"])

    def predict(self, batch: Floats) -> Floats:
        """(n, 8, 8) images to (n, 10) probabilities."""
        scores = gaussian_kernel(flat(batch), self._anchors, self._gamma) @ self._weights
        return softmax(
            10 * scores
        )  # scores are near 0 or 1; the factor spreads them and keeps their order


def coarse_features(images: Floats) -> Floats:
    """The features of the edge model: one row of 32 values for each image.

    The values are the mean of each block of 2x2 pixels, and the square of each mean.
    """
    block = SIDE // COARSE_SIDE
    blocks = images.reshape(len(images), COARSE_SIDE, block, COARSE_SIDE, block)
    reduced: Floats = blocks.mean(axis=(2, 4)).reshape(len(images), COARSE_SIDE**2)
    return np.concatenate([reduced, reduced**2], axis=1)


def gaussian_kernel(left: Floats, right: Floats, gamma: float) -> Floats:
    """exp(-gamma * squared distance) for each pair of images.

    The result has one row for each image of `left`, and one column for each image of `right`.
    """
    distances = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
    kernel: Floats = np.exp(-gamma * distances)
    return kernel
