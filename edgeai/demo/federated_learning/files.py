"""The paths of the example's files. data.py writes them. The workers and the demo read them."""

from pathlib import Path
from typing import Final

EDGES: Final = ("edge0", "edge1", "edge2")


def train_file(directory: Path, edge: str) -> Path:
    return directory / edge / "train.csv"


def held_out_of(train: Path) -> Path:
    """The path of the file with the held-out images, in the same directory as `train`."""
    return train.with_name("held_out.csv")


def model_file(directory: Path) -> Path:
    return directory / "model" / "digits.npz"
