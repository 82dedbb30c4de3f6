"""Weights ↔ vector: what comes back, and what each wrong weight is told."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from edgeai.worker.errors import WeightsError
from edgeai.worker.federated.layout import (
    FlatWeights,
    Layout,
    TensorLayout,
    check,
    check_finite,
    layout_of,
    restore,
)

ARRAYS = npst.arrays(
    dtype=st.sampled_from(["float16", "float32", "int8", "uint8", "bool"]),
    shape=npst.array_shapes(min_dims=0, max_dims=3, max_side=4),
    elements={"allow_nan": False, "allow_infinity": False},
)


@given(st.lists(ARRAYS, min_size=1, max_size=4), st.booleans())
def test_what_float32_holds_comes_back_as_it_was(arrays: list[Any], is_named: bool) -> None:
    weights: Any = {str(n): array for n, array in enumerate(arrays)} if is_named else arrays
    layout = layout_of(weights)
    restored: Any = restore(FlatWeights(weights, layout)[:], layout)
    assert list(restored) == list(weights) if is_named else len(restored) == len(weights)
    for key in weights if is_named else range(len(weights)):
        assert restored[key].dtype == weights[key].dtype
        np.testing.assert_array_equal(restored[key], weights[key])


@given(st.lists(ARRAYS, min_size=1, max_size=4), st.integers(0, 60), st.integers(0, 60))
def test_a_slice_has_the_numbers_of_the_whole(arrays: list[Any], start: int, count: int) -> None:
    whole = np.concatenate([np.asarray(array, np.float32).reshape(-1) for array in arrays])
    weights = FlatWeights(arrays, layout_of(arrays))
    assert len(weights) == len(whole)
    part = weights[start : start + count]
    assert part.dtype == np.float32
    np.testing.assert_array_equal(part, whole[start : start + count])


def test_a_slice_of_one_array_is_not_copied() -> None:
    arrays = [np.zeros(3, np.float32), np.zeros((2, 2), np.float32), np.zeros(0, np.float32)]
    weights = FlatWeights(arrays, layout_of(arrays))
    assert np.shares_memory(weights[3:7], arrays[1])
    assert not np.shares_memory(weights[2:7], arrays[1])


@pytest.mark.parametrize("at", [0, 2**18, 2**19])
def test_a_number_that_is_not_finite_is_found_wherever_it_is(at: int) -> None:
    weights = [np.zeros(2**19 + 1)]
    weights[0][at] = np.inf
    with pytest.raises(WeightsError, match="tensor 0 holds a number that is not finite"):
        FlatWeights(weights, layout_of(weights))


def test_an_averaged_integer_is_rounded_and_kept_in_its_range() -> None:
    layout = Layout((TensorLayout("n", (3,), "int8"), TensorLayout("b", (2,), "bool")))
    vector = np.array([1.6, -300.0, 127.4, 0.4, 0.5], dtype=np.float32)
    restored: Any = restore(vector, layout)
    counts, flags = restored
    assert counts.tolist() == [2, -128, 127]
    assert flags.tolist() == [False, True]


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_the_largest_integer_does_not_become_another_one(dtype: str) -> None:
    """What float32 makes of it is beyond the type."""
    limits = np.iinfo(dtype)
    weights = [np.array([limits.max, limits.min], dtype=dtype)]
    layout = layout_of(weights)
    restored: Any = restore(FlatWeights(weights, layout)[:], layout)
    most, least = restored[0].tolist()
    assert limits.max * (1 - 2**-23) < most <= limits.max
    assert least == limits.min


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ([], "the model has no weights"),
        ([np.array(["a"])], "tensor 0 of type str32 cannot be averaged"),
        ([np.zeros(2, dtype=np.complex64)], "tensor 0 of type complex64 cannot be averaged"),
        ([np.zeros(2)], r"tensor 0 \[2\] float64, expected 0 \[2\] float32"),
        ([np.zeros((2, 1), dtype=np.float32)], r"tensor 0 \[2, 1\] float32, expected 0 \[2\]"),
        ([np.zeros(2, dtype=np.float32)] * 2, "2 tensors, expected 1"),
        ({"0": np.zeros(2, dtype=np.float32)}, "a mapping on one side and a sequence"),
        ([np.array([1, np.nan], dtype=np.float32)], "tensor 0 holds a number that is not finite"),
    ],
)
def test_wrong_weights_are_named(weights: Any, says: str) -> None:
    layout = layout_of([np.zeros(2, dtype=np.float32)])
    with pytest.raises(WeightsError, match=says):
        FlatWeights(weights, layout)[:]


def test_a_float64_beyond_float32_is_not_finite() -> None:
    weights = [np.array([1e300])]
    with pytest.raises(WeightsError, match="not finite in float32"):
        FlatWeights(weights, layout_of(weights))


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ((), "the model has 0 numbers"),
        ((TensorLayout("a", (2**20, 2**20), "float32"),), "the model has 1099511627776 numbers"),
        ((TensorLayout("a", (0, *[2**31] * 9), "int8"),), "an empty tensor of impossible shape"),
        ((TensorLayout("a", (1,), "object"),), "this type cannot be averaged"),
        ((TensorLayout("a", (1,), "int8"),) * 2, "two tensors have one name"),
    ],
)
def test_a_layout_that_cannot_be_worked_with_is_refused(tensors: Any, says: str) -> None:
    with pytest.raises(WeightsError, match=says):
        check(Layout(tensors), max_numbers=2**31)


def test_what_is_not_finite_is_found_in_its_tensor() -> None:
    layout = Layout((TensorLayout("a", (3,), "float32"), TensorLayout("b", (4,), "float32")))
    part = np.array([0, np.inf], dtype=np.float32)
    with pytest.raises(WeightsError, match=r"tensor b \[4\] float32 holds inf at 1"):
        check_finite(part, 3, layout)
