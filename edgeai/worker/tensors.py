"""Arrays as msgpack maps {dtype, shape, data}, and the two messages that carry them.

This module does not use pickle. Before it creates anything, it compares the counts in a message
with that of received bytes, and answers with samples: a short message allocates little memory.

    request   {"samples": tensor}
    reply     {"answers": tensor}    one row per sample, when all answers form one array
              {"answers": [any, …]}  one entry per sample; an array inside an entry is a tensor, too

`data` is row-major and little-endian. Only the first axis of a tensor may have size 0, as in an
answer without boxes, because any other empty axis lets a tensor without data promise 2**31 rows. A
user's map with exactly these three keys and bytes in `data` is read back as an array.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from edgeai.worker.errors import TensorError

Array = npt.NDArray[Any]
Message = TypeVar("Message")

INTEGERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES: Final = frozenset({"bool", "float16", "float32", "float64", *INTEGERS})
MAX_DIMENSIONS: Final = 16
MAX_VALUES: Final = 2**20
"""Most values in one message, also nested. One byte of msgpack can become a list of 56 bytes."""
_LITTLE_ENDIAN: Final = {name: np.dtype(name).newbyteorder("<") for name in DTYPES}
_KEYS: Final = frozenset({"dtype", "shape", "data"})

Dimension = Annotated[int, msgspec.Meta(ge=0, le=2**31)]


class Tensor(msgspec.Struct, frozen=True):
    """One array on the wire."""

    dtype: str
    shape: Annotated[tuple[Dimension, ...], msgspec.Meta(max_length=MAX_DIMENSIONS)]
    data: memoryview


class PredictRequest(msgspec.Struct, frozen=True):
    samples: Tensor


class PredictReply(msgspec.Struct, frozen=True):
    answers: Tensor | list[Any]


_request_decoder: Final = msgspec.msgpack.Decoder(PredictRequest)
_reply_decoder: Final = msgspec.msgpack.Decoder(PredictReply)


def as_samples(batch: Any) -> Array:
    """`batch` as an array with one row per sample.

    Raises: TensorError for no first axis, an empty further one, or a dtype that cannot be sent
    """
    try:
        samples = np.asarray(batch)
    except ValueError as error:
        raise TensorError(f"the batch is no array: {error}") from error
    if not samples.ndim:
        raise TensorError("the batch has no first axis; give an array with one row per sample")
    require_rows(samples.shape)
    if not samples.size and samples.dtype == np.float64:
        return samples  # an empty list has no dtype of its own
    require_supported(samples.dtype)
    return samples


def require_supported(dtype: np.dtype[Any]) -> None:
    if dtype.name not in DTYPES:
        raise TensorError(f"dtype {dtype.name!r} cannot travel, use one of {sorted(DTYPES)}")


def require_rows(shape: tuple[int, ...]) -> None:
    """Raises: TensorError if an axis behind the first has size 0, because such rows have no data"""
    if 0 in shape[1:]:
        raise TensorError(f"shape {list(shape)}: only the first axis may have size 0")


def to_tensor(array: Array) -> Tensor:
    """Raises: TensorError for objects, text, complex numbers, an empty axis behind the first"""
    require_supported(array.dtype)
    require_rows(array.shape)
    if array.ndim > MAX_DIMENSIONS:
        raise TensorError(f"the array has {array.ndim} dimensions, limit {MAX_DIMENSIONS}")
    packed = np.ascontiguousarray(array, dtype=_LITTLE_ENDIAN[array.dtype.name])
    return Tensor(array.dtype.name, array.shape, memoryview(packed.tobytes()))


def to_array(tensor: Tensor) -> Array:
    """A writable copy. Raises: TensorError"""
    dtype = _LITTLE_ENDIAN.get(tensor.dtype)
    if dtype is None:
        raise TensorError(f"dtype {tensor.dtype!r} is not one of {sorted(DTYPES)}")
    require_rows(tensor.shape)
    promised_bytes = math.prod(tensor.shape) * dtype.itemsize
    if promised_bytes != len(tensor.data):
        raise TensorError(
            f"shape {list(tensor.shape)} of {tensor.dtype} needs {promised_bytes} bytes, "
            f"got {len(tensor.data)}"
        )
    try:
        # The copy is aligned, writable and in this machine's byte order.
        view: Array = np.ndarray(tensor.shape, dtype=dtype, buffer=tensor.data)
        return view.astype(dtype.newbyteorder("="), copy=True)
    except ValueError as error:  # one dimension is 0, and the others exceed any memory
        raise TensorError(f"shape {list(tensor.shape)} is impossible: {error}") from error


def encode_request(samples: Array) -> bytes:
    return _encode(PredictRequest(to_tensor(samples)))


def decode_request(body: bytes) -> Array:
    """The samples, with at least one dimension. Raises: TensorError"""
    samples = to_array(_decode(_request_decoder, body).samples)
    if not samples.ndim:
        raise TensorError("the samples have no first axis")
    return samples


def encode_reply(answers: Any) -> bytes:
    """`answers` is an array or a sequence, one entry per sample. Raises: TensorError"""
    is_array = isinstance(answers, np.ndarray) and answers.dtype.name in DTYPES
    if is_array and 0 not in answers.shape[1:]:  # otherwise each row travels as a tensor
        return _encode(PredictReply(to_tensor(answers)))
    return _encode(PredictReply(list(answers)))


def decode_reply(body: bytes, *, samples: int) -> list[Any]:
    """One answer per sample.

    Args: samples: the number of samples in the request
    Raises: TensorError, also for another number of answers
    """
    _check_values(body)
    answers = _decode(_reply_decoder, body).answers
    if not isinstance(answers, Tensor):
        _check_answers(len(answers), samples)
        return [_restore_tensors(answer) for answer in answers]
    if not answers.shape:
        raise TensorError("the answers have no first axis")
    _check_answers(answers.shape[0], samples)
    return list(to_array(answers))


def _check_answers(answers: int, samples: int) -> None:
    if answers != samples:
        raise TensorError(f"{answers} answers for {samples} samples")


def _check_values(body: bytes) -> None:
    """Raises: TensorError for a body with more than MAX_VALUES values, before any is created"""
    if len(body) <= MAX_VALUES:
        return  # each value has at least one byte
    position = 0
    for _ in range(MAX_VALUES):
        head_bytes, length_bytes = _HEADS[body[position]]
        if length_bytes:
            length = body[position + 1 : position + 1 + length_bytes]
            position += int.from_bytes(length)
        position += head_bytes
        if position >= len(body):
            return
    problem = f"the message has more than {MAX_VALUES} values"
    raise TensorError(f"{problem}: send large answers as arrays")


def _head_sizes() -> Iterator[tuple[int, tuple[int, int]]]:
    """(first byte, (bytes of the head, of which bytes of the length of the data)) for each msgpack
    type whose head has more than one byte, or that has data. Heads of lists and maps have no data.

    Source: github.com/msgpack/msgpack/blob/master/spec.md
    """
    yield from ((0xA0 + size, (1 + size, 0)) for size in range(32))  # short text
    for power, first in enumerate((0xC4, 0xC5, 0xC6)):  # bytes
        yield first, (1 + 2**power, 2**power)
    for power, first in enumerate((0xC7, 0xC8, 0xC9)):  # extensions
        yield first, (2 + 2**power, 2**power)
    for power, first in enumerate((0xD9, 0xDA, 0xDB)):  # text
        yield first, (1 + 2**power, 2**power)
    for power, first in enumerate((0xCC, 0xCD, 0xCE, 0xCF)):  # whole numbers
        yield first, (1 + 2**power, 0)
        yield first + 4, (1 + 2**power, 0)
    yield from ((0xD4 + power, (2 + 2**power, 0)) for power in range(5))  # short extensions
    yield from ((0xCA, (5, 0)), (0xCB, (9, 0)))  # numbers with a fraction
    yield from ((0xDC, (3, 0)), (0xDD, (5, 0)), (0xDE, (3, 0)), (0xDF, (5, 0)))  # lists, maps


_HEADS: Final = [dict(_head_sizes()).get(first, (1, 0)) for first in range(256)]


def _encode(message: PredictRequest | PredictReply) -> bytes:
    try:
        return msgspec.msgpack.encode(message, enc_hook=_encode_numpy)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise TensorError(f"an answer cannot travel: {error}") from error


def _encode_numpy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return to_tensor(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"type {type(value).__name__} is neither a plain value nor an array")


def _decode(decoder: msgspec.msgpack.Decoder[Message], body: bytes) -> Message:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TensorError(f"malformed message: {error}") from error


def _restore_tensors(value: Any) -> Any:
    """A copy of an answer with arrays in place of tensors. A tensor is a map with exactly the keys
    dtype, shape and data. An answer can contain tensors at any depth of its lists and maps.
    """
    if isinstance(value, list):
        return [_restore_tensors(element) for element in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == _KEYS and isinstance(value["data"], bytes):
        return to_array(_convert(value))
    return {key: _restore_tensors(element) for key, element in value.items()}


def _convert(fields: dict[str, Any]) -> Tensor:
    try:
        return msgspec.convert(fields, Tensor)
    except msgspec.ValidationError as error:
        raise TensorError(f"malformed tensor: {error}") from error
