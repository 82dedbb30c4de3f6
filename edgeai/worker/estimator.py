"""The interface of a user's model, on the edge and in the cloud."""

from collections.abc import Sequence
from typing import Any, Protocol

from edgeai.worker.errors import EstimatorError
from edgeai.worker.tensors import Array


class Estimator(Protocol):
    """A model. It need not be thread-safe, because the library makes one call at a time."""

    def load(self, model_url: str) -> None:
        """Load the model from `model_url`, the worker's MODEL_URL."""

    def predict(self, batch: Array) -> Sequence[Any] | Array:
        """One answer for each row of `batch`."""


def predict(estimator: Estimator, samples: Array) -> Sequence[Any] | Array:
    """The answers of the estimator: one for each sample.

    Raises: EstimatorError if a sample has no answer, or has several; any error of predict()
    """
    answers = estimator.predict(samples)
    try:
        count = len(answers)
    except TypeError:
        raise EstimatorError(
            f"{type(estimator).__name__}.predict gave {type(answers).__name__}; "
            "give a sequence with one answer per sample"
        ) from None
    if count != len(samples):
        raise EstimatorError(
            f"{type(estimator).__name__}.predict gave {count} answers for {len(samples)} samples; "
            "give one per sample, in the order of the batch"
        )
    return answers
