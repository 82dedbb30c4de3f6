"""Arrays to bytes and back; hostile bytes."""

import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st

from edgeai.worker import tensors
from edgeai.worker.errors import TensorError

SHAPES = st.tuples(
    st.integers(0, 4), numpy_st.array_shapes(min_dims=0, min_side=1, max_side=4)
).map(lambda sides: (sides[0], *sides[1]))
ANY_ARRAY = st.sampled_from(sorted(tensors.DTYPES)).flatmap(
    lambda dtype: numpy_st.arrays(dtype, SHAPES)
)


@given(ANY_ARRAY)
def test_samples_come_back_as_they_went(samples: tensors.Array) -> None:
    back = tensors.decode_request(tensors.encode_request(samples))
    assert back.dtype == samples.dtype
    np.testing.assert_array_equal(back, samples)


def test_samples_come_back_writable_and_in_this_byte_order() -> None:
    big_endian = np.arange(6, dtype=">i4").reshape(2, 3).T
    back = tensors.decode_request(tensors.encode_request(big_endian))
    back += 1
    assert back.dtype == np.int32
    np.testing.assert_array_equal(back, big_endian + 1)


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([1, 2.5, "car", None, True], id="plain values"),
        pytest.param([[[1, 2, 3, 4, 0.9]], []], id="boxes, one sample without"),
        pytest.param([{"label": "cat", "p": [0.1, 0.9]}], id="maps"),
        pytest.param([], id="nothing"),
    ],
)
def test_plain_answers_come_back_as_they_went(answers: list[Any]) -> None:
    reply = tensors.encode_reply(answers)
    assert tensors.decode_reply(reply, samples=len(answers)) == answers


def test_arrays_inside_answers_come_back_as_arrays() -> None:
    answers = [{"mask": np.eye(2, dtype=np.uint8), "p": np.float32(0.5)}, [np.arange(3)]]
    first, second = tensors.decode_reply(tensors.encode_reply(answers), samples=2)
    np.testing.assert_array_equal(first["mask"], np.eye(2))
    assert first["p"] == 0.5
    np.testing.assert_array_equal(second[0], np.arange(3))


def test_one_array_of_answers_is_one_row_per_sample() -> None:
    rows = tensors.decode_reply(tensors.encode_reply(np.arange(6).reshape(3, 2)), samples=3)
    assert [row.tolist() for row in rows] == [[0, 1], [2, 3], [4, 5]]


def test_answers_without_boxes_come_back_with_their_shape() -> None:
    for answers in (np.zeros((2, 0, 5)), [np.zeros((0, 5)), np.zeros((0, 5))]):
        rows = tensors.decode_reply(tensors.encode_reply(answers), samples=2)
        assert [row.shape for row in rows] == [(0, 5), (0, 5)]


@pytest.mark.parametrize("answers", [[object()], [np.array(["text"])], [1 + 2j], [2**70]])
def test_answers_that_cannot_travel_are_refused(answers: list[Any]) -> None:
    with pytest.raises(TensorError, match=r"cannot travel|dtype"):
        tensors.encode_reply(answers)


def tensor(dtype: Any = "float32", shape: Any = (1,), data: Any = b"\0" * 4) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data": data}


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param(tensor(dtype="object"), id="object dtype"),
        pytest.param(tensor(dtype="O"), id="pickled objects"),
        pytest.param(tensor(dtype="V4"), id="void dtype"),
        pytest.param(tensor(dtype=4), id="dtype is a number"),
        pytest.param(tensor(shape=(2,)), id="shape promises more"),
        pytest.param(tensor(shape=(0,)), id="shape promises less"),
        pytest.param(tensor(shape=(-1,)), id="negative dimension"),
        pytest.param(tensor(shape=(2**40, 2**40)), id="dimension beyond memory"),
        pytest.param(tensor(shape=(0, *[2**31] * 9), data=b""), id="empty but impossible"),
        pytest.param(tensor(shape=(20_000_000, 0), data=b""), id="many rows without data"),
        pytest.param(tensor(shape=(0, 20_000_000, 0), data=b""), id="no rows, many columns"),
        pytest.param(tensor(shape=(1,) * 17), id="too many dimensions"),
        pytest.param(tensor(shape=()), id="no first axis"),
        pytest.param(tensor(data="text"), id="data is text"),
        pytest.param({"dtype": "int8"}, id="fields missing"),
        pytest.param(None, id="nothing"),
    ],
)
def test_hostile_samples_are_refused(samples: Any) -> None:
    with pytest.raises(TensorError):
        tensors.decode_request(msgspec.msgpack.encode({"samples": samples}))


@given(st.binary(max_size=64))
def test_any_bytes_are_a_message_or_a_tensor_error(body: bytes) -> None:
    for decode in (tensors.decode_request, lambda reply: tensors.decode_reply(reply, samples=1)):
        try:
            decode(body)
        except TensorError:
            continue


def test_deep_nesting_is_a_tensor_error() -> None:
    nested = b"\x81\xa7answers" + b"\x91" * 100_000
    with pytest.raises(TensorError):
        tensors.decode_reply(nested, samples=1)


EMPTY = {"dtype": "float32", "shape": [20_000_000, 0], "data": b""}


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(EMPTY, id="rows without data"),
        pytest.param([EMPTY], id="rows without data in an answer"),
        pytest.param(tensor("int8", (2**22,), bytes(2**22)), id="more rows than samples"),
    ],
)
def test_hostile_answers_are_refused_before_they_take_memory(answers: Any) -> None:
    reply = msgspec.msgpack.encode({"answers": answers})
    tracemalloc.start()
    try:
        with pytest.raises(TensorError):
            tensors.decode_reply(reply, samples=1)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 2**20


@pytest.mark.parametrize("value", [0, [], {}, "", 1.5, True])
def test_an_answer_of_too_many_values_is_refused(value: Any) -> None:
    reply = msgspec.msgpack.encode({"answers": [[value] * (tensors.MAX_VALUES + 1)]})
    with pytest.raises(TensorError, match="values"):
        tensors.decode_reply(reply, samples=1)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20),
    max_leaves=20,
)


@settings(max_examples=50)  # each example has a megabyte
@given(VALUES)
def test_a_long_message_of_few_values_comes_back(value: Any) -> None:
    answers = [value, b"\0" * tensors.MAX_VALUES, value]
    assert tensors.decode_reply(tensors.encode_reply(answers), samples=3) == answers


def test_the_limit_of_values_is_exact() -> None:
    most = tensors.MAX_VALUES - 3  # a map, its key and the list are values, too
    reply = tensors.encode_reply([300] * most)
    assert len(tensors.decode_reply(reply, samples=most)) == most
    with pytest.raises(TensorError, match="values"):
        tensors.decode_reply(tensors.encode_reply([300] * (most + 1)), samples=most + 1)


@pytest.mark.parametrize(
    "batch",
    [5, [object()], ["a", "b"], [[1, 2], [3]], [1j], np.zeros((2, 0))],
    ids=lambda batch: str(batch)[:8],
)
def test_batch_that_is_no_array_of_numbers_is_refused(batch: Any) -> None:
    with pytest.raises(TensorError):
        tensors.as_samples(batch)
