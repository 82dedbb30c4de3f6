"""Arrays as msgpack maps {dtype, shape, data}, and the two messages that carry them.

CloudClient and BigModelService call this module, which does not use pickle. Before it creates an
array, it compares the size that the shape needs with the number of received bytes. So a message
cannot allocate more memory than it contains.

    request   {"samples": tensor}
    reply     {"answers": tensor}    one row per sample, when all answers form one array
              {"answers": [any, …]}  one entry per sample; an array inside an entry is a tensor, too

`data` is row-major and little-endian. A user's map with exactly these three keys and bytes in
`data` is read back as an array.
"""

import math
from typing import Annotated, Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from workersdk.errors import TensorError

Array = npt.NDArray[Any]
Message = TypeVar("Message")

INTEGERS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES: Final = frozenset({"bool", "float16", "float32", "float64", *INTEGERS})
MAX_DIMENSIONS: Final = 16
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
_tensor_decoder: Final = msgspec.msgpack.Decoder(Tensor)


def as_samples(batch: Any) -> Array:
    """`batch` as an array with one row per sample.

    Raises: TensorError if `batch` has no first axis, or a dtype that cannot be sent
    """
    try:
        samples = np.asarray(batch)
    except ValueError as error:
        raise TensorError(f"the batch is no array: {error}") from error
    if not samples.ndim:
        raise TensorError("the batch has no first axis; give an array with one row per sample")
    if not samples.size and samples.dtype == np.float64:
        return samples  # an empty list has no dtype of its own
    require_supported(samples.dtype)
    return samples


def require_supported(dtype: np.dtype[Any]) -> None:
    if dtype.name not in DTYPES:
        raise TensorError(f"dtype {dtype.name!r} cannot travel, use one of {sorted(DTYPES)}")


def to_tensor(array: Array) -> Tensor:
    """Raises: TensorError for a dtype that cannot be sent (objects, text, complex numbers)"""
    require_supported(array.dtype)
    if array.ndim > MAX_DIMENSIONS:
        raise TensorError(f"the array has {array.ndim} dimensions, limit {MAX_DIMENSIONS}")
    packed = np.ascontiguousarray(array, dtype=_LITTLE_ENDIAN[array.dtype.name])
    return Tensor(array.dtype.name, array.shape, memoryview(packed.tobytes()))


def to_array(tensor: Tensor) -> Array:
    """A writable copy. Raises: TensorError"""
    dtype = _LITTLE_ENDIAN.get(tensor.dtype)
    if dtype is None:
        raise TensorError(f"dtype {tensor.dtype!r} is not one of {sorted(DTYPES)}")
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
    if isinstance(answers, np.ndarray) and answers.dtype.name in DTYPES:
        return _encode(PredictReply(to_tensor(answers)))
    return _encode(PredictReply(list(answers)))


def decode_reply(body: bytes) -> list[Any]:
    """One answer per sample. Raises: TensorError"""
    answers = _decode(_reply_decoder, body).answers
    if isinstance(answers, Tensor):
        array = to_array(answers)
        if not array.ndim:
            raise TensorError("the answers have no first axis")
        return list(array)
    return [_restore_tensors(answer) for answer in answers]


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
