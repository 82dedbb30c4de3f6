"""Trains both models of the example in a few seconds and writes the files for the workers.

    python3 -m edgeai.demo.joint_inference.train DIRECTORY

A user or `edgeai demo` runs the script once before the workers. Each run writes the same files and
prints the same figures. The script needs scikit-learn. The workers do not need scikit-learn.
"""

import argparse
import json
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from edgeai.demo import digits, digits_source
from edgeai.demo.digits import Digits, Floats
from edgeai.demo.joint_inference.cloud_training import train_cloud
from edgeai.demo.joint_inference.models import CloudModel, EdgeModel, coarse_features
from edgeai.worker import CrossEntropy

HELD_OUT: Final = 0.4  # share of the images that are not for training (719 images)
THRESHOLD_CROSS_ENTROPY: Final = "0.7"  # joint_inference.yaml has the same value; a test compares


class Files(msgspec.Struct, frozen=True):
    """The files that the training writes."""

    edge_model: Path
    cloud_model: Path
    dataset: Path


class Figures(msgspec.Struct, frozen=True):
    """Accuracies and upload ratio on the held-out images, in 0..1."""

    samples: int
    edge_accuracy: float
    joint_accuracy: float
    cloud_accuracy: float
    upload_ratio: float


def files_in(directory: Path) -> Files:
    return Files(directory / "edge.npz", directory / "cloud.npz", directory / "digits.csv")


def train(directory: Path) -> Files:
    """Create `directory` and write edge.npz, cloud.npz and digits.csv there. Raises: OSError"""
    directory.mkdir(parents=True, exist_ok=True)
    files = files_in(directory)
    training_part, held_out = split()
    train_edge(files.edge_model, training_part)
    train_cloud(files.cloud_model, training_part)
    digits.save(files.dataset, held_out)
    return files


def split() -> tuple[Digits, Digits]:
    """The training images and the held-out images. Both have the same share of each digit."""
    return digits_source.split(digits_source.load(), held_out=HELD_OUT)


def train_edge(path: Path, data: Digits) -> None:
    from sklearn.linear_model import LogisticRegression  # takes a second: demos import this module

    regression = LogisticRegression(C=10.0, max_iter=2000)  # type: ignore[no-untyped-call]
    regression.fit(coarse_features(data.images), data.labels)
    np.savez(
        path,
        weights=regression.coef_.T.astype(np.float32),
        bias=regression.intercept_.astype(np.float32),
    )


def measure(files: Files) -> Figures:
    """Measure each model, and joint inference, on the held-out images. Uses no network."""
    edge, cloud = EdgeModel(), CloudModel()
    edge.load(str(files.edge_model))
    cloud.load(str(files.cloud_model))
    held_out = digits.load(files.dataset)
    mining = CrossEntropy(threshold_cross_entropy=THRESHOLD_CROSS_ENTROPY)
    by_edge, by_cloud = edge.predict(held_out.images), cloud.predict(held_out.images)
    is_hard = np.array([mining(answer).is_hard for answer in by_edge])
    joint = np.where(is_hard[:, None], by_cloud, by_edge).astype(np.float32)
    return Figures(
        samples=len(held_out.labels),
        edge_accuracy=accuracy(by_edge, held_out),
        joint_accuracy=accuracy(joint, held_out),
        cloud_accuracy=accuracy(by_cloud, held_out),
        upload_ratio=round(float(is_hard.mean()), 4),
    )


def accuracy(answers: Floats, truth: Digits) -> float:
    return round(float((answers.argmax(axis=1) == truth.labels).mean()), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory", type=Path, help="where the models and the images go")
    files = train(parser.parse_args().directory)
    print(json.dumps(msgspec.to_builtins(measure(files))))


if __name__ == "__main__":
    main()
