"""Loads the images of the examples from scikit-learn. No worker imports this module.

The functions import scikit-learn, which takes a second, so a program pays for it only when it loads
or splits the images.
"""

from typing import Final

import numpy as np

from edgeai.demo.digits import Digits, Labels

SEED: Final = 0


def load() -> Digits:
    """All 1797 images and their labels."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Digits((bunch.images / 16).astype(np.float32), bunch.target.astype(np.int64))


def split(digits: Digits, *, held_out: float, stratified: bool = True) -> tuple[Digits, Digits]:
    """Split the images into two parts: the training images and the held-out images.

    Each call gives the same parts.

    Args:
        held_out: share of the held-out images, in 0..1
        stratified: hold out the same share of each digit
    """
    from sklearn.model_selection import train_test_split

    known, rest = train_test_split(
        np.arange(len(digits)),
        test_size=held_out,
        random_state=SEED,
        stratify=digits.labels if stratified else None,
    )
    return part(digits, known), part(digits, rest)


def part(digits: Digits, indices: Labels) -> Digits:
    return Digits(digits.images[indices], digits.labels[indices])
