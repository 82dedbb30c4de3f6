"""Where the images of the examples come from. Needs scikit-learn; no worker imports this."""

from typing import Final

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from examples.digits import Digits, Labels

SEED: Final = 0


def load() -> Digits:
    """All 1797 images."""
    bunch = load_digits()
    return Digits((bunch.images / 16).astype(np.float32), bunch.target.astype(np.int64))


def split(digits: Digits, *, held_out: float, stratified: bool = True) -> tuple[Digits, Digits]:
    """The images to train with, and the share `held_out` in 0..1; the same each time.

    `stratified`: of each digit that share
    """
    known, rest = train_test_split(
        np.arange(len(digits)),
        test_size=held_out,
        random_state=SEED,
        stratify=digits.labels if stratified else None,
    )
    return part(digits, known), part(digits, rest)


def part(digits: Digits, indices: Labels) -> Digits:
    return Digits(digits.images[indices], digits.labels[indices])
