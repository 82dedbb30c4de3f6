"""The interface of a user's model that takes part, and how the result is saved.

The methods and their names are those of Sedna's estimators.
"""

import logging
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np

from common.errors import SettingsError
from workersdk.federated.layout import Weights
from workersdk.tensors import Array

log = logging.getLogger(__name__)


class FederatedEstimator(Protocol):
    """A model that is trained here. Called from one thread."""

    def load(self, model_url: str) -> None:
        """Load the model from `model_url`, the job's pretrainedModel."""

    def train(self, *, train_data: Any, valid_data: Any = None, **options: Any) -> Any:
        """Train from the weights that were set. Returns metrics by name, or None."""

    def evaluate(self, data: Any, **options: Any) -> Mapping[str, float]:
        """Metrics of the weights that were set."""

    def get_weights(self) -> Weights:
        """The same names, shapes and types each time."""

    def set_weights(self, weights: Any) -> None:
        """`weights` as get_weights gives them."""

    def save(self, model_url: str) -> Any:
        """Save the model to `model_url`, the worker's MODEL_URL."""


@runtime_checkable
class RoundAware(Protocol):
    """An estimator that needs the weights that a round starts from, as FedProx does."""

    def begin_round(self, number: int, weights: Weights) -> None:
        """Called after set_weights, before train."""


def require_savable(url: str, estimator: FederatedEstimator | None) -> None:
    """Raises: SettingsError where only an estimator could save the result at `url`"""
    scheme, found, _ = url.partition("://")
    if found and estimator is None:
        raise SettingsError(
            "environment variable MODEL_URL",
            f"begins with {scheme}://, and AggregationServer was given no estimator to save the "
            "result there; give it one, or name a Model whose url is a path on the node",
        )


def save_model(weights: Weights, estimator: FederatedEstimator | None, url: str) -> None:
    """Save with the estimator, else as a NumPy archive. Without a URL nothing is saved.

    Raises: SettingsError as require_savable; what the estimator raises; OSError
    """
    require_savable(url, estimator)
    if not url:
        log.warning("the result is not saved: MODEL_URL is not set")
    elif estimator is not None:
        estimator.set_weights(weights)
        estimator.save(url)
    else:
        _save_archive(weights, Path(url))


def _save_archive(weights: Weights, path: Path) -> None:
    named = weights if isinstance(weights, Mapping) else dict(_numbered(weights))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        _write_archive(file, named)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _write_archive(file: BinaryIO, named: Mapping[str, Array]) -> None:
    """As numpy.savez does. Its own parameters would clash with tensors named like them."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in named.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def _numbered(weights: Any) -> Any:
    return ((f"weight_{number}", array) for number, array in enumerate(weights))
