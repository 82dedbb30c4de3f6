"""Counts add up, whatever the results were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeai.worker.cloud_client import CloudAnswer
from edgeai.worker.hard_example_mining import Decision
from edgeai.worker.joint_inference import EASY, merge
from edgeai.worker.results import Counts, InferenceResult, Reason, count, finite_numbers

FALLBACKS = sorted(set(Reason) - {Reason.EASY, Reason.HARD})


@st.composite
def results(draw: st.DrawFn) -> InferenceResult:
    """What JointInference makes of any decision and any outcome at the cloud."""
    if not draw(st.booleans()):
        return merge(Decision(False, 0.9, ""), "edge", EASY)
    answered = CloudAnswer(Reason.HARD, True, "cloud")
    fallback = st.builds(CloudAnswer, st.sampled_from(FALLBACKS), st.booleans())
    return merge(Decision(True, 0.1, ""), "edge", draw(st.just(answered) | fallback))


@given(st.lists(results(), max_size=50))
def test_counts_of_any_results_hold_their_invariants(some: list[InferenceResult]) -> None:
    counts = count(some)
    assert counts.hard == counts.answered_by_cloud + counts.fallbacks
    assert counts.answered_by_cloud <= counts.uploaded <= counts.hard <= counts.seen == len(some)
    assert counts.answered_by_cloud == sum(result.answer == "cloud" for result in some)


@given(st.lists(results(), max_size=20), st.lists(results(), max_size=20))
def test_counting_in_parts_is_counting_the_whole(
    first: list[InferenceResult], second: list[InferenceResult]
) -> None:
    assert count(first) + count(second) == count(first + second)


@pytest.mark.parametrize(
    "counts",
    [
        {"seen": 1, "hard": 1},
        {"seen": 1, "hard": 2, "fallbacks": 2},
        {"seen": 2, "uploaded": 1},
        {"seen": 1, "hard": 1, "answered_by_cloud": 1},
        {"seen": -1},
    ],
    ids=str,
)
def test_contradictory_counts_cannot_be_made(counts: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="contradictory"):
        Counts(**counts)


class Diverged:
    """A value that cannot be a number, as a tensor of several elements."""

    def __float__(self) -> float:
        raise RuntimeError


def test_of_many_metrics_the_first_numbers_are_told() -> None:
    metrics = {"loss": float("nan"), "name": "digits", "a": 1, "b": "2.5", "c": Diverged()}
    assert finite_numbers(metrics, most=2, max_chars=40) == {"a": 1.0, "b": 2.5}


@pytest.mark.parametrize("result", [None, 0.9, [0.9]])
def test_a_result_without_names_has_no_metrics(result: object) -> None:
    assert finite_numbers(result, most=2, max_chars=40) == {}
