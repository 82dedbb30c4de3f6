"""The result of inference for each sample, and counts over many results.

Pure data. JointInference creates the data; the user's script and the Reporter read it.
"""

import contextlib
import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec


class AnsweredBy(enum.StrEnum):
    EDGE = "edge"
    CLOUD = "cloud"


class Reason(enum.StrEnum):
    """Why the edge or the cloud answered."""

    EASY = "easy"
    """the sample was not hard: the edge answered"""
    HARD = "hard"
    """the sample was hard: the cloud answered; for all reasons below the edge answered"""
    CLOUD_TIMEOUT = "cloud_timeout"
    """the cloud sent no whole answer before the deadline"""
    CLOUD_UNREACHABLE = "cloud_unreachable"
    """no connection to the cloud was possible, or the connection broke"""
    CLOUD_ERROR = "cloud_error"
    """the cloud answered with an error, or its answer cannot be read"""
    CLOUD_BACKING_OFF = "cloud_backing_off"
    """the cloud was not asked, because it failed shortly before"""
    SAMPLE_TOO_LARGE = "sample_too_large"
    """the cloud was not asked, because this sample exceeds the byte limit of a request"""


class InferenceResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one sample. `uploaded`: the whole request with this sample was sent."""

    answer: Any
    answered_by: AnsweredBy
    reason: Reason
    is_hard: bool
    uploaded: bool
    score: float | None  # see hard_example_mining.Decision
    edge_answer: Any
    model_version: int | None = None
    """The version of the edge model that gave edge_answer; None: the model is not loaded hot."""


class Counts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Totals since this process started. Raises: ValueError if they contradict each other"""

    seen: int = 0
    hard: int = 0
    uploaded: int = 0
    answered_by_cloud: int = 0
    fallbacks: int = 0

    def __post_init__(self) -> None:
        adds_up = self.hard == self.answered_by_cloud + self.fallbacks
        if (
            not adds_up
            or not 0 <= self.answered_by_cloud <= self.uploaded <= self.hard <= self.seen
        ):
            raise ValueError(f"contradictory counts: {self!r}")

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            seen=self.seen + other.seen,
            hard=self.hard + other.hard,
            uploaded=self.uploaded + other.uploaded,
            answered_by_cloud=self.answered_by_cloud + other.answered_by_cloud,
            fallbacks=self.fallbacks + other.fallbacks,
        )


def finite_numbers(metrics: Any, most: int, max_chars: int) -> dict[str, float]:
    """The first `most` of the metrics of an estimator that are finite numbers; {} if it gives none.

    Args: max_chars: of a name, which is cut
    """
    numbers: dict[str, float] = {}
    for name, value in metrics.items() if isinstance(metrics, Mapping) else ():
        if len(numbers) == most:
            break
        with contextlib.suppress(TypeError, ValueError):
            if math.isfinite(number := float(value)):
                numbers[str(name)[:max_chars]] = number
    return numbers


COUNT_NAMES: Final = Counts.__struct_encode_fields__
"""The names of the counts in reports."""


def count(results: Iterable[InferenceResult]) -> Counts:
    results = list(results)
    hard = sum(result.is_hard for result in results)
    by_cloud = sum(result.answered_by is AnsweredBy.CLOUD for result in results)
    return Counts(
        seen=len(results),
        hard=hard,
        uploaded=sum(result.uploaded for result in results),
        answered_by_cloud=by_cloud,
        fallbacks=hard - by_cloud,
    )
