"""Compares the federated model with the models that each node trains alone.

The module also trains a centralised model on all images, which no node of the federation has. Each
model has the same settings and the same number of passes over its images. The accuracy of each
model is measured on all held-out images.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from edgeai.demo.digits import Digits
from edgeai.demo.federated_learning.aggregator import ROUNDS
from edgeai.demo.federated_learning.data import Part, joined
from edgeai.demo.federated_learning.model import Perceptron


class Figures(msgspec.Struct, frozen=True):
    """Accuracies in 0..1 on all held-out images."""

    local_accuracy: list[float]
    """Accuracy of each edge's own model, in the order of the edges."""
    federated_accuracy: float
    centralised_accuracy: float


def compare(parts: Mapping[str, Part], model: Path) -> Figures:
    """Args: parts: edge -> its images; model: file of the federated model

    Raises: OSError, ValueError
    """
    held_out = joined([part.held_out for part in parts.values()])
    everything = joined([part.train for part in parts.values()])
    federated = Perceptron()
    federated.load(str(model))
    return Figures(
        local_accuracy=[_accuracy(trained_alone(part.train), held_out) for part in parts.values()],
        federated_accuracy=_accuracy(federated, held_out),
        centralised_accuracy=_accuracy(trained_alone(everything), held_out),
    )


def trained_alone(images: Digits) -> Perceptron:
    """A model that is trained with the passes of one trainer in all rounds, but alone."""
    perceptron = Perceptron()
    for number in range(1, ROUNDS + 1):
        perceptron.begin_round(number, perceptron.get_weights())
        perceptron.train(train_data=images)
    return perceptron


def _accuracy(perceptron: Perceptron, held_out: Digits) -> float:
    return round(perceptron.accuracy(held_out), 4)
