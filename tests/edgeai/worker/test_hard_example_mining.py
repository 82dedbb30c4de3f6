"""The formulas of the algorithms, and what they say to odd input."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeai.worker.errors import MiningError
from edgeai.worker.hard_example_mining import (
    ALGORITHMS,
    IBT,
    PARAMETERS,
    CloudOnly,
    CrossEntropy,
    EdgeOnly,
    HardExampleMining,
    Random,
    Threshold,
    create,
)

NAN = math.nan


def boxes(*scores: float) -> list[list[float]]:
    return [[0, 0, 10, 10, score, 1] for score in scores]


@pytest.mark.parametrize(
    ("algorithm", "prediction", "is_hard"),
    [
        pytest.param(Threshold(), boxes(0.4, 0.5), True, id="mean below the threshold"),
        pytest.param(Threshold(), boxes(0.5, 0.5), False, id="mean at the threshold"),
        pytest.param(Threshold(), [0.1, 0.2], True, id="plain scores"),
        pytest.param(Threshold(threshold="0.9"), np.array([0.8]), True, id="threshold as text"),
        pytest.param(Threshold(), [["a", 0, 0, 0, "0.2"]], True, id="score as text"),
        pytest.param(Threshold(), np.array(boxes(0.9)), False, id="boxes as an array"),
        pytest.param(Threshold(), [], False, id="no box"),
        pytest.param(Threshold(), None, False, id="no prediction"),
        pytest.param(Threshold(), boxes(NAN, 0.9), True, id="NaN score"),
        pytest.param(Threshold(threshold=0), [0.0], False, id="threshold 0"),
        pytest.param(CrossEntropy(), [1.0, 0.0, 0.0], False, id="certain, with p = 0"),
        pytest.param(CrossEntropy(), [0.25] * 4, True, id="uniform"),
        pytest.param(CrossEntropy(threshold_cross_entropy=0), [0.25] * 4, False, id="never"),
        pytest.param(CrossEntropy(threshold_cross_entropy=1), [1.0], False, id="n = 1 at most"),
        pytest.param(CrossEntropy(), [1.0], False, id="n = 1"),
        pytest.param(CrossEntropy(), [], False, id="n = 0"),
        pytest.param(CrossEntropy(), [NAN, 0.5], True, id="NaN probability"),
        pytest.param(CrossEntropy(), [0.0, 0.0], True, id="no probability at all"),
        pytest.param(CrossEntropy(), [-0.5, 1.5], True, id="negative probability"),
        pytest.param(CrossEntropy(), np.array([[0.9, 0.1]]), False, id="one row of a matrix"),
        pytest.param(IBT(), boxes(0.5, 0.9), True, id="half uncertain, score at threshold_box"),
        pytest.param(IBT(), boxes(0.6, 0.7, 0.2), False, id="a third uncertain"),
        pytest.param(IBT(threshold_img="0.9"), boxes(0.1, *[0.9] * 9), True, id="one box of ten"),
        pytest.param(
            IBT(threshold_img="0.7"),
            boxes(*[0.1] * 3, *[0.9] * 7),
            True,
            id="three boxes of ten, though 1 - 0.7 is above 0.3",
        ),
        pytest.param(IBT(threshold_img=1), boxes(0.9), True, id="threshold_img 1: all"),
        pytest.param(IBT(), boxes(0.1, 1.5), False, id="score above 1"),
        pytest.param(IBT(), boxes(0.1, -0.5), False, id="score below 0"),
        pytest.param(IBT(), boxes(0.9, NAN), True, id="IBT: NaN score"),
        pytest.param(IBT(), [], False, id="IBT: no box"),
        pytest.param(Random(random_ratio="0"), [0.5], False, id="ratio 0"),
        pytest.param(Random(random_ratio="1"), [0.5], True, id="ratio 1"),
        pytest.param(Random(random_ratio=1), [], False, id="random: no prediction"),
        pytest.param(Random(random_ratio=1), 7, True, id="random: a class number"),
        pytest.param(CloudOnly(), None, True, id="cloud only"),
        pytest.param(EdgeOnly(), [0.0], False, id="edge only"),
    ],
)
def test_decision(algorithm: HardExampleMining, prediction: Any, is_hard: bool) -> None:
    assert algorithm(prediction).is_hard is is_hard


def test_cross_entropy_score_is_the_formula() -> None:
    p = [0.7, 0.2, 0.1]
    expected = 1 + sum(x * math.log(x) for x in p) / math.log(3)
    assert CrossEntropy()(p).score == pytest.approx(expected)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20).filter(lambda p: sum(p) > 1e-6))
def test_cross_entropy_score_is_a_share_for_any_distribution(weights: list[float]) -> None:
    score = CrossEntropy()(np.array(weights) / sum(weights)).score
    assert score is not None
    assert 0 <= score <= 1


def test_random_draws_about_its_ratio_and_repeats_with_its_seed() -> None:
    first = create("Random", {"random_ratio": "0.3", "seed": "7"})
    second = create("Random", {"random_ratio": "0.3", "seed": "7"})
    decisions = [first([1]).is_hard for _ in range(2000)]
    assert decisions == [second([1]).is_hard for _ in range(2000)]
    assert 500 < sum(decisions) < 700


@pytest.mark.parametrize("name", ALGORITHMS)
def test_create_knows_every_name_in_any_case(name: str) -> None:
    for spelling in (name, name.lower(), name.upper(), f" {name} "):
        assert type(create(spelling, {})).__name__ == name


@pytest.mark.parametrize(
    ("name", "parameters", "names_in_error"),
    [
        ("Thresh", {}, ("Thresh", "Threshold, CrossEntropy, IBT")),
        ("IBT", {"threshold": "0.5"}, ("IBT", "'threshold'", "0.5", "threshold_box")),
        ("IBT", {"threshold_img": "1.5"}, ("IBT", "threshold_img", "1.5", "from 0 to 1")),
        ("Threshold", {"threshold": "nan"}, ("Threshold", "threshold", "nan", "from 0 to 1")),
        ("Threshold", {"threshold": ""}, ("Threshold", "threshold", "''", "from 0 to 1")),
        ("CrossEntropy", {"threshold_cross_entropy": "high"}, ("CrossEntropy", "high")),
        ("Random", {"random_ratio": "-1"}, ("Random", "random_ratio", "-1", "from 0 to 1")),
        ("Random", {"seed": "x"}, ("Random", "seed", "'x'", "whole number")),
        ("EdgeOnly", {"a": "1"}, ("EdgeOnly", "'a'", "no parameters")),
    ],
)
def test_create_error_names_what_is_wrong(
    name: str, parameters: Mapping[str, str], names_in_error: tuple[str, ...]
) -> None:
    with pytest.raises(MiningError) as raised:
        create(name, parameters)
    for part in names_in_error:
        assert part in str(raised.value)


@pytest.mark.parametrize("algorithm", [Threshold(), IBT()])
@pytest.mark.parametrize("prediction", [5, [[1, 2]], [None], ["car"]])
def test_prediction_of_another_form_is_a_clear_error(
    algorithm: HardExampleMining, prediction: Any
) -> None:
    with pytest.raises(MiningError, match=r"needs boxes \[x, y, w, h, score"):
        algorithm(prediction)


def test_cross_entropy_of_no_vector_is_a_clear_error() -> None:
    with pytest.raises(MiningError, match="class probabilities"):
        CrossEntropy()([["a"]])


def test_every_algorithm_declares_its_parameters() -> None:
    assert PARAMETERS.keys() == ALGORITHMS.keys()
