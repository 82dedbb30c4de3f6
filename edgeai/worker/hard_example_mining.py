"""Hard-example mining: decides from the edge's answer alone whether to ask the cloud.

JointInference calls an algorithm once for each sample, from any thread. The algorithms do no I/O,
count nothing and log nothing. All of them are pure except Random. The formulas and parameter names
are the same as in Sedna's library, so Sedna's manifests keep their meaning.

The formulas do not define two cases. A sample with an empty prediction (None, or no element) is not
hard, as in Sedna. One whose prediction contains NaN is hard: the edge has no usable answer.
"""

import inspect
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from edgeai.worker.errors import MiningError

Parameter = float | str  # a job has every parameter as text


class Decision(msgspec.Struct, frozen=True):
    """Whether a sample is hard. `score` is compared with the threshold; None: there is no score."""

    is_hard: bool
    score: float | None
    reason: str


class HardExampleMining(Protocol):
    """The interface that JointInference calls. A user's own algorithm needs no base class."""

    def __call__(self, prediction: Any) -> Decision:
        """Judge one sample by the answer of the estimator's predict().

        Raises: MiningError if the algorithm cannot read a prediction of this form
        """


class Threshold:
    """A sample is hard if its mean score is below `threshold`.

    A prediction is a sequence of boxes [x, y, w, h, score, …] or a plain sequence of scores.
    """

    def __init__(self, *, threshold: Parameter = 0.5) -> None:
        self.threshold = fraction("Threshold", "threshold", threshold)

    def __call__(self, prediction: Any) -> Decision:
        scores = confidence_scores("Threshold", prediction)
        if not scores.size:
            return NOTHING_PREDICTED
        return below(float(scores.mean()), self.threshold, "mean score")


class CrossEntropy:
    """A sample is hard if its certainty 1 + Σ p·ln p / ln n is below the threshold.

    A prediction is a vector of n class probabilities. The certainty is 1 if one class has all the
    probability, and 0 if all are equally probable. For n = 1 it is 1. For p = 0, p·ln p is 0.
    """

    def __init__(self, *, threshold_cross_entropy: Parameter = 0.5) -> None:
        self.threshold = fraction(
            "CrossEntropy", "threshold_cross_entropy", threshold_cross_entropy
        )

    def __call__(self, prediction: Any) -> Decision:
        probabilities = numbers("CrossEntropy", prediction)
        if not probabilities.size:
            return NOTHING_PREDICTED
        return below(certainty(probabilities), self.threshold, "certainty")


class IBT:
    """A sample is hard if enough of its boxes have a score of at most `threshold_box`.

    Enough is a share of at least 1 - `threshold_img`. A prediction has boxes or scores, as for
    Threshold. If a score is outside [0, 1], it is no confidence, and the sample is not hard.
    """

    def __init__(self, *, threshold_img: Parameter = 0.5, threshold_box: Parameter = 0.5) -> None:
        self.threshold_img = fraction("IBT", "threshold_img", threshold_img)
        self.threshold_box = fraction("IBT", "threshold_box", threshold_box)

    def __call__(self, prediction: Any) -> Decision:
        scores = confidence_scores("IBT", prediction)
        if not scores.size:
            return NOTHING_PREDICTED
        if np.isnan(scores).any():
            return NOT_A_NUMBER
        if ((scores < 0) | (scores > 1)).any():
            return Decision(False, None, "a score is outside [0, 1]")
        share = float(np.count_nonzero(scores <= self.threshold_box) / scores.size)
        # 1 - 0.7 is 0.30000…04: without the tolerance 3 boxes of 10 would not be enough.
        is_hard = share >= 1 - self.threshold_img - 1e-9
        return Decision(is_hard, share, "share of uncertain boxes")


class Random:
    """A sample is hard with probability `random_ratio`. A `seed` makes the draws repeatable."""

    def __init__(self, *, random_ratio: Parameter = 0.3, seed: Parameter | None = None) -> None:
        self.ratio = fraction("Random", "random_ratio", random_ratio)
        self._random = random.Random(None if seed is None else whole("Random", "seed", seed))

    def __call__(self, prediction: Any) -> Decision:
        if is_empty(prediction):
            return NOTHING_PREDICTED
        return Decision(self._random.random() < self.ratio, None, "random draw")


class CloudOnly:
    """Every sample is hard, even a sample with an empty prediction."""

    def __call__(self, prediction: Any) -> Decision:
        return Decision(True, None, "cloud only")


class EdgeOnly:
    """No sample is hard."""

    def __call__(self, prediction: Any) -> Decision:
        return Decision(False, None, "edge only")


NOTHING_PREDICTED: Final = Decision(False, None, "nothing was predicted")
NOT_A_NUMBER: Final = Decision(True, None, "the prediction holds NaN")

ALGORITHMS: Final[Mapping[str, Callable[..., HardExampleMining]]] = {
    algorithm.__name__: algorithm
    for algorithm in (Threshold, CrossEntropy, IBT, Random, CloudOnly, EdgeOnly)
}
PARAMETERS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(inspect.signature(algorithm).parameters)
    for name, algorithm in ALGORITHMS.items()
}


def create(name: str, parameters: Mapping[str, str]) -> HardExampleMining:
    """Create the algorithm with this name. Letter case and spaces around the name do not matter.

    Raises: MiningError for an unknown name, an unknown parameter or a wrong value
    """
    algorithms = {algorithm.lower(): algorithm for algorithm in ALGORITHMS}
    algorithm = algorithms.get(name.strip().lower())
    if algorithm is None:
        raise MiningError(name, f"is not known, use one of {', '.join(ALGORITHMS)}")
    for parameter, value in parameters.items():
        if parameter not in PARAMETERS[algorithm]:
            takes = ", ".join(sorted(PARAMETERS[algorithm])) or "no parameters"
            raise MiningError(
                algorithm,
                f"parameter {parameter!r} (value {value!r}) is not known, it takes {takes}",
            )
    return ALGORITHMS[algorithm](**parameters)


def fraction(algorithm: str, parameter: str, value: Parameter) -> float:
    """`value` as a number in [0, 1]. Raises: MiningError"""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not 0 <= number <= 1:
        raise MiningError(
            algorithm, f"parameter {parameter!r} is {value!r}, expected a number from 0 to 1"
        )
    return number


def whole(algorithm: str, parameter: str, value: Parameter) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise MiningError(
            algorithm, f"parameter {parameter!r} is {value!r}, expected a whole number"
        ) from None


def below(score: float, threshold: float, reason: str) -> Decision:
    if math.isnan(score):
        return NOT_A_NUMBER
    return Decision(score < threshold, score, reason)


def certainty(probabilities: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """1 + Σ p·ln p / ln n in [0, 1]; NaN if the sum is not positive or an element is negative."""
    if not probabilities.sum() > 0 or (probabilities < 0).any():
        return math.nan
    if probabilities.size == 1:
        return 1.0
    present = probabilities[probabilities > 0]
    score = 1 + float((present * np.log(present)).sum()) / math.log(probabilities.size)
    return score if math.isnan(score) else min(max(score, 0.0), 1.0)  # corrects rounding


def is_empty(prediction: Any) -> bool:
    return prediction is None or (hasattr(prediction, "__len__") and len(prediction) == 0)


def confidence_scores(algorithm: str, prediction: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The score of each element of `prediction`: a number itself, or the fifth number of a box."""
    if is_empty(prediction):
        return np.empty(0)
    try:
        return np.array([score_of(element) for element in prediction], dtype=np.float64)
    except (TypeError, ValueError, IndexError) as error:
        raise MiningError(
            algorithm, f"needs boxes [x, y, w, h, score, …] or scores as a prediction: {error}"
        ) from error


def score_of(element: Any) -> float:
    if isinstance(element, Sequence | np.ndarray) and not isinstance(element, str | bytes):
        return float(element[4])
    return float(element)


def numbers(algorithm: str, prediction: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    if is_empty(prediction):
        return np.empty(0)
    try:
        return np.asarray(prediction, dtype=np.float64).ravel()
    except (TypeError, ValueError) as error:
        raise MiningError(
            algorithm, f"needs a vector of class probabilities as a prediction: {error}"
        ) from error
