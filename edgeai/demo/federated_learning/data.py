"""Writes the images of the example's nodes. One node has almost all images of a digit.

    python3 -m edgeai.demo.federated_learning.data DIRECTORY

The script creates DIRECTORY/edge0 to edge2, each with `train.csv` and `held_out.csv`, and
DIRECTORY/model for the result. A user or `edgeai demo` runs the script once before the workers.
Each run writes the same files. The script needs scikit-learn. The workers do not need scikit-learn.
"""

import argparse
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from edgeai.demo import digits, digits_source
from edgeai.demo.digits import Digits
from edgeai.demo.federated_learning.files import EDGES, held_out_of, train_file

HOME: Final = (0, 0, 0, 1, 1, 1, 2, 2, 2, 2)
"""Digit -> number of the edge that has almost all images of this digit."""
STRAYS: Final = 0.05
"""Share of a digit's images that are on another edge than HOME says."""
HELD_OUT: Final = 0.4
"""Share of each edge's images that no trainer uses for training."""
SEED: Final = 0


class Part(NamedTuple):
    train: Digits
    held_out: Digits


def write(directory: Path) -> dict[str, Part]:
    """Write the files of all edges. Returns: edge -> its images. Raises: OSError"""
    (directory / "model").mkdir(parents=True, exist_ok=True)
    parts = divide(digits_source.load())
    for edge, part in parts.items():
        (directory / edge).mkdir(exist_ok=True)
        digits.save(train_file(directory, edge), part.train)
        digits.save(held_out_of(train_file(directory, edge)), part.held_out)
    return parts


def divide(images: Digits) -> dict[str, Part]:
    """Divide the images among the edges. Each image goes to exactly one edge."""
    random = np.random.default_rng(SEED)
    home = np.array(HOME)[images.labels]
    away = (home + random.integers(1, len(EDGES), len(images))) % len(EDGES)
    edges = np.where(random.random(len(images)) < STRAYS, away, home)
    parts = {}
    for number, edge in enumerate(EDGES):
        own = digits_source.part(images, np.flatnonzero(edges == number))
        parts[edge] = Part(*digits_source.split(own, held_out=HELD_OUT, stratified=False))
    return parts


def joined(parts: list[Digits]) -> Digits:
    return Digits(
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the images of the example's nodes.")
    parser.add_argument("directory", type=Path, help="where the images go")
    for edge, part in write(parser.parse_args().directory).items():
        print(f"{edge}: {len(part.train)} images to train with, {len(part.held_out)} held out")


if __name__ == "__main__":
    main()
