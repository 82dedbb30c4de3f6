"""The result of inference for each sample, and the counts made of results.

Pure data: made by JointInference, read by the user's script and by the Reporter.
"""

import enum
from collections.abc import Iterable
from typing import Any, Final

import msgspec


class AnsweredBy(enum.StrEnum):
    EDGE = "edge"
    CLOUD = "cloud"


class Reason(enum.StrEnum):
    """Why this side answered."""

    EASY = "easy"
    """the sample was not hard: the edge answered"""
    HARD = "hard"
    """the sample was hard and the cloud answered; all reasons below are fallbacks to the edge"""
    CLOUD_TIMEOUT = "cloud_timeout"
    """no whole answer within the deadline"""
    CLOUD_UNREACHABLE = "cloud_unreachable"
    """no connection, or the connection broke"""
    CLOUD_ERROR = "cloud_error"
    """the cloud answered with an error, or its answer cannot be read"""
    CLOUD_BACKING_OFF = "cloud_backing_off"
    """not asked: the cloud failed a moment ago"""
    SAMPLE_TOO_LARGE = "sample_too_large"
    """not asked: this sample alone exceeds the byte limit of a request"""


class InferenceResult(msgspec.Struct, frozen=True, kw_only=True):
    """One sample's answer. `uploaded`: the whole request was handed to the network."""

    answer: Any
    answered_by: AnsweredBy
    reason: Reason
    is_hard: bool
    uploaded: bool
    score: float | None  # the mining's, see hard_example_mining.Decision
    edge_answer: Any


class Counts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Totals since this process started.

    Raises: ValueError when they contradict each other
    """

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


COUNT_NAMES: Final = Counts.__struct_encode_fields__
"""As they are reported."""


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
