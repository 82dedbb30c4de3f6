"""Trains the cloud model of the example with NumPy alone."""

from pathlib import Path
from typing import Final

import numpy as np

from edgeai.demo.digits import CLASSES, Digits
from edgeai.demo.joint_inference.models import gaussian_kernel
from edgeai.demo.layers import flat

GAMMA: Final = 0.5
RIDGE: Final = 0.01


def train_cloud(path: Path, data: Digits) -> None:
    """Train the cloud model: kernel ridge regression on one-hot labels, in closed form."""
    anchors = flat(data.images)
    kernel = gaussian_kernel(anchors, anchors, GAMMA).astype(np.float64)
    kernel[np.diag_indices_from(kernel)] += RIDGE
    weights = np.linalg.solve(kernel, np.eye(CLASSES)[data.labels])
    np.savez(path, anchors=anchors, weights=weights.astype(np.float32), gamma=np.array(GAMMA))
