"""The data of the examples: scikit-learn's 1797 handwritten digits, 8x8 pixels of 0..16.

People wrote these digits by hand (UCI "Optical Recognition of Handwritten Digits"). The module
digits_source loads all images. A worker reads its part of the images from a file with one CSV row
for each image, and needs only NumPy.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

SIDE: Final = 8
CLASSES: Final = 10

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Digits:
    """Images and their labels.

    `images` has shape (n, 8, 8) and values 0..1. `labels` has shape (n,) and values 0..9.
    """

    images: Floats
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)


def save(path: Path, digits: Digits) -> None:
    """Write a CSV file: one header row, then one row for each image with label and 64 pixels.

    The rows after the header are the samples that a Dataset of format csv counts.
    """
    pixels = np.rint(digits.images.reshape(-1, SIDE * SIDE) * 16).astype(np.int64)
    header = ",".join(["label", *(f"pixel{index}" for index in range(SIDE * SIDE))])
    rows: npt.NDArray[Any] = np.column_stack([digits.labels, pixels])
    np.savetxt(path, rows, fmt="%d", delimiter=",", header=header, comments="")


def load(path: Path) -> Digits:
    """Read a CSV file of save(). Raises: OSError; ValueError for a file with another form"""
    rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.int64, ndmin=2)
    images = (rows[:, 1:].reshape(-1, SIDE, SIDE) / 16).astype(np.float32)
    return Digits(images, rows[:, 0])
