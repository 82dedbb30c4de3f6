"""Writes what the first service needs into a directory: both models, and images of its own making.

    python3 -m edgeai.demo.joint_inference.first DIRECTORY

first.yaml runs this script in the pods of the service, before their workers. The script needs only
NumPy, and no file. Each run writes the same files. The ten kinds of images are random shapes with
noise, so small that the edge model, which sees a quarter of the pixels, is often unsure.
"""

import argparse
import os
from pathlib import Path
from typing import Final

import numpy as np

from edgeai.demo import digits
from edgeai.demo.digits import CLASSES, SIDE, Digits
from edgeai.demo.joint_inference.cloud_training import train_cloud
from edgeai.demo.joint_inference.models import coarse_features
from edgeai.demo.layers import softmax

KNOWN: Final = 600
STREAMED: Final = 400
NOISE: Final = 0.25
SEED: Final = 0
STEPS: Final = 400
STEP_SIZE: Final = 2.0


def write(directory: Path) -> None:
    """Write edge.npz, cloud.npz and images.csv. Raises: OSError"""
    training_part, streamed = _part(KNOWN, SEED + 1), _part(STREAMED, SEED + 2)
    # Pods of one node write the same directory: a file appears whole or not at all.
    scratch = directory / f".making-{os.getpid()}-{os.uname().nodename}"
    scratch.mkdir()
    train_edge(scratch / "edge.npz", training_part)
    train_cloud(scratch / "cloud.npz", training_part)
    digits.save(scratch / "images.csv", streamed)
    for file in scratch.iterdir():
        file.chmod(0o644)
        file.rename(directory / file.name)
    scratch.rmdir()


def _part(count: int, seed: int) -> Digits:
    shapes = np.random.default_rng(SEED).random((CLASSES, SIDE, SIDE))
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    images = shapes[labels] + random.normal(0, NOISE, (count, SIDE, SIDE))
    return Digits(images.clip(0, 1).astype(np.float32), labels)


def train_edge(path: Path, data: Digits) -> None:
    """Train the edge model: softmax regression by gradient descent."""
    features = coarse_features(data.images)
    truth = np.eye(CLASSES)[data.labels]
    weights, bias = np.zeros((features.shape[1], CLASSES)), np.zeros(CLASSES)
    for _ in range(STEPS):
        slope = (softmax((features @ weights + bias).astype(np.float32)) - truth) / len(data)
        weights -= STEP_SIZE * features.T @ slope
        bias -= STEP_SIZE * slope.sum(axis=0)
    np.savez(path, weights=weights.astype(np.float32), bias=bias.astype(np.float32))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the files of the first service.")
    parser.add_argument("directory", type=Path, help="exists; where the files go")
    write(parser.parse_args().directory)


if __name__ == "__main__":
    main()
