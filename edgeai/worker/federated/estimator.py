"""The interface of a user's model in federated learning, and functions that save the result.

The methods have the same names as in Sedna's estimators.
"""

import logging
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np

from edgeai.errors import SettingsError
from edgeai.worker.federated.files import NewFile
from edgeai.worker.federated.layout import Weights
from edgeai.worker.tensors import Array

log = logging.getLogger(__name__)


class FederatedEstimator(Protocol):
    """A model that can be trained. The library calls it from one thread."""

    def load(self, model_url: str) -> None:
        """Load the model from `model_url`, the job's pretrainedModel."""

    def train(self, *, train_data: Any, valid_data: Any = None, **options: Any) -> Any:
        """Train, from the weights of set_weights on. Returns: metrics by name, or None"""

    def evaluate(self, data: Any, **options: Any) -> Mapping[str, float]:
        """Evaluate the weights of set_weights on `data`. Returns: metrics by name"""

    def get_weights(self) -> Weights:
        """The weights, with the same names, shapes and types at each call."""

    def set_weights(self, weights: Any) -> None:
        """Set the weights. They have the form that get_weights returns."""

    def save(self, model_url: str) -> Any:
        """Save the model to `model_url`, the worker's MODEL_URL."""


@runtime_checkable
class RoundAware(Protocol):
    """An estimator that needs the weights at the start of a round, as FedProx does."""

    def begin_round(self, number: int, weights: Weights) -> None:
        """The library calls this after set_weights and before train."""


def require_savable(url: str, estimator: FederatedEstimator | None) -> None:
    """Raises: SettingsError if only an estimator can save the result at `url`, and none is given"""
    scheme, separator, _ = url.partition("://")
    if separator and estimator is None:
        raise SettingsError(
            "environment variable MODEL_URL",
            f"begins with {scheme}://, and AggregationServer was given no estimator to save the "
            "result there; give it one, or name a Model whose url is a path on the node",
        )


def save_model(weights: Weights, estimator: FederatedEstimator | None, url: str) -> None:
    """Save the result with the estimator, or without one as a NumPy archive. No URL: save nothing.

    Raises: SettingsError as require_savable; the errors of the estimator; OSError
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
    arrays = weights if isinstance(weights, Mapping) else dict(_numbered(weights))
    path.parent.mkdir(parents=True, exist_ok=True)
    with NewFile(path) as file:
        _write_archive(file, arrays)


def _write_archive(file: BinaryIO, arrays: Mapping[str, Array]) -> None:
    """Write as numpy.savez does. savez itself cannot save a tensor with a parameter's name."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def _numbered(weights: Any) -> Any:
    return ((f"weight_{number}", array) for number, array in enumerate(weights))
