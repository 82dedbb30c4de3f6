"""Aggregations, which join the trainers' models into one model.

A new aggregation is a subclass of Aggregation.

combine() gets one slice of all updates at a time, so memory grows with neither model nor trainers.

- FedAvg: the mean, weighted by samples (McMahan et al. 2017).
- FedAvgM: FedAvg with a momentum (Hsu et al. 2019).
- TrimmedMean: the mean without the most extreme values of each weight (Yin et al. 2018). A few
  broken or hostile participants change the result only a little. The mean is not weighted by
  samples, because a participant may report a wrong number of samples.
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from edgeai.worker.errors import AggregationError
from edgeai.worker.federated.layout import Vector


class Slice(NamedTuple):
    """One range of the weights: of the model, of all updates, and of the last round's memory."""

    model: Vector
    """(n,), the model that the participants started from"""
    updates: npt.NDArray[np.float32]
    """(participants, n), at least one participant"""
    samples: npt.NDArray[np.float64]
    """(participants,), each more than 0"""
    memory: Vector
    """(n,), zeros in the first round, and always where `has_memory` is False"""


class Aggregation(ABC):
    """`least_updates`: a round with fewer updates does not close."""

    name: ClassVar[str]
    has_memory: ClassVar[bool] = False
    least_updates: int = 1

    @abstractmethod
    def combine(self, slice_: Slice) -> tuple[Vector, Vector]:
        """Returns: model and memory of the next round, each of shape (n,)."""


class FedAvg(Aggregation):
    name = "FedAvg"

    def combine(self, slice_: Slice) -> tuple[Vector, Vector]:
        return mean(slice_), slice_.memory


class FedAvgM(Aggregation):
    """Raises: AggregationError for a momentum outside [0, 1) or a rate of 0 or less"""

    name = "FedAvgM"
    has_memory = True

    def __init__(self, *, momentum: float = 0.9, rate: float = 1.0) -> None:
        if not 0 <= momentum < 1:
            raise AggregationError(self.name, f"momentum is {momentum}, expected 0 up to below 1")
        if not (math.isfinite(rate) and rate > 0):
            raise AggregationError(self.name, f"rate is {rate}, expected a number above 0")
        self._momentum, self._rate = np.float32(momentum), np.float32(rate)

    def combine(self, slice_: Slice) -> tuple[Vector, Vector]:
        velocity: Vector = self._momentum * slice_.memory + (slice_.model - mean(slice_))
        model: Vector = slice_.model - self._rate * velocity
        return model, velocity


class TrimmedMean(Aggregation):
    """The mean without the smallest and the largest values of each number.

    Args: trim: share of the participants, at least one, whose values are dropped at each end

    Raises: AggregationError for a share outside (0, 0.5)
    """

    name = "TrimmedMean"

    def __init__(self, *, trim: float = 0.1) -> None:
        if not 0 < trim < 0.5:
            raise AggregationError(self.name, f"trim is {trim}, expected above 0 and below 0.5")
        self._trim = trim
        # `combine` leaves out the smallest and the largest value, so one value of three is left.
        self.least_updates = 3

    def combine(self, slice_: Slice) -> tuple[Vector, Vector]:
        count = len(slice_.updates)
        margin = min(max(1, int(count * self._trim)), (count - 1) // 2)
        ordered = np.sort(slice_.updates, axis=0)
        average: Vector = ordered[margin : count - margin].mean(axis=0, dtype=np.float32)
        return average, slice_.memory


def mean(slice_: Slice) -> Vector:
    shares = (slice_.samples / slice_.samples.sum()).astype(np.float32)
    # Not `shares @ updates`: the threads of BLAS would wait for each other, each for a core.
    combined: Vector = shares[0] * slice_.updates[0]
    part = np.empty_like(combined)
    for share, update in zip(shares[1:], slice_.updates[1:], strict=True):
        combined += np.multiply(update, share, out=part)
    return combined


AGGREGATIONS: dict[str, type[Aggregation]] = {
    class_.name: class_ for class_ in (FedAvg, FedAvgM, TrimmedMean)
}


def named(name: str) -> Aggregation:
    """Create the aggregation with its default parameters. Raises: AggregationError"""
    if name not in AGGREGATIONS:
        raise AggregationError(name, f"is unknown, use one of {', '.join(sorted(AGGREGATIONS))}")
    return AGGREGATIONS[name]()
