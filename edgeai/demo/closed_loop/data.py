"""The images of the example, and its models: one that has never seen two digits, a big one that
knows all, and one that is broken.
"""

from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from edgeai.demo import digits, digits_source
from edgeai.demo.closed_loop import classifier
from edgeai.demo.digits import CLASSES, SIDE, Digits
from edgeai.demo.joint_inference.cloud_training import train_cloud
from edgeai.worker import hard_examples

UNSEEN: Final = (8, 9)
EDGES: Final = ("edge0", "edge1", "edge2")
NOISE: Final = 0.05


class Files(msgspec.Struct, frozen=True):
    directory: Path

    @property
    def models(self) -> Path:
        """The directory that a server offers to the nodes."""
        return self.directory / "models"

    @property
    def hard_examples(self) -> Path:
        return self.directory / "hard" / "digits.jsonl"

    def model(self, version: int) -> Path:
        return self.models / f"digits-{version}.npz"


class Images(msgspec.Struct, frozen=True):
    known: Digits
    """For the first model, without the unseen digits."""
    held_out: Digits
    """For measurements; no model learns from them."""


def write(directory: Path) -> Images:
    """Write the models cloud.npz and digits-1.npz, and the images of each edge. Raises: OSError"""
    files = Files(directory)
    for each in (directory, files.models, files.hard_examples.parent):
        each.mkdir()
    training, others = digits_source.split(digits_source.load(), held_out=0.66)
    streamed, held_out = digits_source.split(others, held_out=0.5)
    known = digits_source.part(training, np.flatnonzero(~np.isin(training.labels, UNSEEN)))
    train_cloud(directory / "cloud.npz", training)
    classifier.train(files.model(1), known)
    parts = np.array_split(np.arange(len(streamed)), len(EDGES))
    for edge, part in zip(EDGES, parts, strict=True):
        digits.save(directory / f"{edge}.csv", digits_source.part(streamed, part))
    return Images(known, held_out)


def train_second(files: Files, known: Digits) -> int:
    """Train version 2 with the hard examples, as the cloud has labelled them.

    Returns: the number of different hard examples
    Raises: OSError
    """
    examples = {item.sample.tobytes(): item for item in hard_examples(files.hard_examples)}
    images = np.array([item.sample for item in examples.values()], dtype=np.float32)
    labels = np.array([int(np.argmax(item.answer)) for item in examples.values()])
    both = Digits(np.concatenate([known.images, images]), np.concatenate([known.labels, labels]))
    classifier.train(files.model(2), both)
    return len(examples)


def write_broken(files: Files) -> None:
    """Version 3, whose weights are noise. It loads, and answers nonsense. Raises: OSError"""
    weights = np.random.default_rng(0).normal(0, NOISE, (SIDE * SIDE, CLASSES))
    classifier.save(files.model(3), weights.astype(np.float32), np.zeros(CLASSES, np.float32))
