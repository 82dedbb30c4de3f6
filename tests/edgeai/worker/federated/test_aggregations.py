"""The formulas, against what is computed by hand."""

from typing import Any

import numpy as np
import pytest

from edgeai.worker.errors import AggregationError
from edgeai.worker.federated.aggregations import (
    AGGREGATIONS,
    Aggregation,
    FedAvg,
    FedAvgM,
    Slice,
    TrimmedMean,
    named,
)


def slice_of(updates: Any, samples: Any, *, model: Any = None, memory: Any = None) -> Slice:
    vectors = np.array(updates, dtype=np.float32)
    zeros = np.zeros(vectors.shape[1], dtype=np.float32)
    return Slice(
        model=zeros if model is None else np.array(model, dtype=np.float32),
        updates=vectors,
        samples=np.array(samples, dtype=np.float64),
        memory=zeros if memory is None else np.array(memory, dtype=np.float32),
    )


@pytest.mark.parametrize(
    ("updates", "samples", "expected"),
    [
        ([[1, 2]], [5], [1, 2]),
        ([[0, 0], [4, 8]], [1, 3], [3, 6]),
        ([[1, 1], [2, 2], [6, 6]], [1, 1, 2], [3.75, 3.75]),
        ([[1e30], [1e30]], [2**52, 2**52], [1e30]),
    ],
)
def test_fedavg_weighs_by_samples(updates: Any, samples: Any, expected: Any) -> None:
    model, _ = FedAvg().combine(slice_of(updates, samples))
    assert model == pytest.approx(expected)
    assert model.dtype == np.float32


def test_fedavgm_without_momentum_is_fedavg() -> None:
    slice_ = slice_of([[0.0, 2.0], [4.0, 6.0]], [1, 1], model=[1.0, 1.0], memory=[9.0, 9.0])
    model, _ = FedAvgM(momentum=0.0).combine(slice_)
    assert model == pytest.approx([2.0, 4.0])


def test_fedavgm_goes_on_in_the_direction_of_the_last_round() -> None:
    aggregation = FedAvgM(momentum=0.5)
    first, memory = aggregation.combine(slice_of([[2.0]], [1], model=[0.0]))
    assert first == pytest.approx([2.0])
    second, memory = aggregation.combine(slice_of([[2.0]], [1], model=first, memory=memory))
    assert second == pytest.approx([3.0])  # nobody moved: half of the last step
    third, _ = aggregation.combine(slice_of([second], [1], model=second, memory=memory))
    assert third == pytest.approx([3.5])


@pytest.mark.parametrize(
    ("values", "trim", "expected"),
    [
        ([1, 2, 3], 0.1, 2),  # at least one at each end
        ([1, 2, 3, 4, 1000], 0.2, 3),
        ([-1000, 1, 2, 3, 4, 1000], 0.34, 2.5),
        ([1, 3], 0.4, 2),  # too few to leave one out
    ],
)
def test_trimmed_mean_leaves_the_extremes_out(values: Any, trim: float, expected: float) -> None:
    slice_ = slice_of([[value] for value in values], [1] * len(values))
    model, _ = TrimmedMean(trim=trim).combine(slice_)
    assert model == pytest.approx([expected])


def test_a_hostile_minority_cannot_move_the_trimmed_mean_beyond_the_honest() -> None:
    rng = np.random.default_rng(3)
    honest = rng.normal(0, 1, size=(8, 100))
    hostile = rng.choice([-1e6, 1e6], size=(2, 100))
    model, _ = TrimmedMean(trim=0.2).combine(slice_of([*honest, *hostile], [1] * 10))
    assert np.all(np.abs(model) <= np.abs(honest).max())


@pytest.mark.parametrize(
    "make",
    [
        lambda: FedAvgM(momentum=1.0),
        lambda: FedAvgM(momentum=-0.1),
        lambda: FedAvgM(rate=0.0),
        lambda: FedAvgM(rate=float("nan")),
        lambda: TrimmedMean(trim=0.0),
        lambda: TrimmedMean(trim=0.5),
        lambda: named("Median"),
    ],
)
def test_a_parameter_out_of_range_is_refused(make: Any) -> None:
    with pytest.raises(AggregationError, match=r"expected|use one of"):
        make()


def test_each_is_known_by_its_name() -> None:
    assert {name: type(named(name)) for name in AGGREGATIONS} == AGGREGATIONS
    assert all(issubclass(each, Aggregation) for each in AGGREGATIONS.values())
