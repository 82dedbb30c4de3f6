"""Converts a model's weights to one vector of float32, and back.

A trainer sends the layout (names, shapes, types) once, and after that only vectors. So an
aggregator needs no ML framework, and no number is sent as text.

The aggregator averages integers and booleans as numbers; restore() rounds them. float32 loses
digits of float64, and of integers beyond 2**24 (16 777 216).
"""

import bisect
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from edgeai.worker.errors import WeightsError
from edgeai.worker.tensors import DTYPES, MAX_DIMENSIONS, Array, Dimension

Vector = npt.NDArray[np.float32]
Weights = Sequence[Array] | Mapping[str, Array]

MAX_TENSORS: Final = 100_000
_STEP_NUMBERS: Final = 1 << 18  # converted at a time
Name = Annotated[str, msgspec.Meta(max_length=1024)]


class TensorLayout(msgspec.Struct, frozen=True):
    name: Name
    shape: Annotated[tuple[Dimension, ...], msgspec.Meta(max_length=MAX_DIMENSIONS)]
    dtype: Annotated[str, msgspec.Meta(max_length=16)]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.name} {list(self.shape)} {self.dtype}"


class Layout(msgspec.Struct, frozen=True):
    """`is_named`: the weights are a mapping. If not, the name of a tensor is its position."""

    tensors: Annotated[tuple[TensorLayout, ...], msgspec.Meta(max_length=MAX_TENSORS)]
    is_named: bool = False

    @property
    def size(self) -> int:
        return sum(tensor.size for tensor in self.tensors)


def layout_of(weights: Weights) -> Layout:
    """Raises: WeightsError naming the tensor"""
    pairs = list(_pairs(weights))
    if not pairs:
        raise WeightsError("the model has no weights")
    return Layout(
        tuple(TensorLayout(name, array.shape, array.dtype.name) for name, array in pairs),
        is_named=isinstance(weights, Mapping),
    )


class FlatWeights:
    """The numbers of `weights` as one vector of float32. Only slices are copied, or are views.

    Raises: WeightsError when the weights have another layout, or a number that is not finite
    """

    def __init__(self, weights: Weights, layout: Layout) -> None:
        own_layout = layout_of(weights)
        if own_layout != layout:
            raise WeightsError(difference(own_layout, layout))
        pairs = list(_pairs(weights))
        self._arrays = [array.reshape(-1) for _, array in pairs]
        sizes = (array.size for array in self._arrays)
        self._starts = list(itertools.accumulate(sizes, initial=0))
        for (name, _), array in zip(pairs, self._arrays, strict=True):
            steps = range(0, array.size, _STEP_NUMBERS)
            if not all(np.isfinite(_float32(array, start, _STEP_NUMBERS)).all() for start in steps):
                raise WeightsError(f"tensor {name} holds a number that is not finite in float32")

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, range_: slice) -> Vector:
        start, stop, _ = range_.indices(len(self))
        parts = []
        index = bisect.bisect_right(self._starts, start) - 1
        while start < stop:
            part = _float32(self._arrays[index], start - self._starts[index], stop - start)
            parts.append(part)
            start, index = start + len(part), index + 1
        return parts[0] if len(parts) == 1 else np.concatenate((*parts, np.empty(0, np.float32)))


Numbers = Vector | FlatWeights


def restore(vector: Vector, layout: Layout) -> Weights:
    """Arrays in the layout's types. Arrays of float32 share the vector's memory."""
    arrays: dict[str, Array] = {}
    start = 0
    for tensor in layout.tensors:
        part = vector[start : start + tensor.size]
        arrays[tensor.name] = _typed(part, np.dtype(tensor.dtype)).reshape(tensor.shape)
        start += tensor.size
    return arrays if layout.is_named else list(arrays.values())


def difference(layout: Layout, expected: Layout) -> str:
    """A text about the first difference of two layouts; "" where they are equal."""
    if layout.is_named != expected.is_named:
        return "the weights are a mapping on one side and a sequence on the other"
    if len(layout.tensors) != len(expected.tensors):
        return f"{len(layout.tensors)} tensors, expected {len(expected.tensors)}"
    for tensor, other in zip(layout.tensors, expected.tensors, strict=True):
        if tensor != other:
            return f"tensor {tensor}, expected {other}"
    return ""


def check(layout: Layout, *, max_numbers: int) -> None:
    """Check a layout that came over the wire. Raises: WeightsError"""
    for tensor in layout.tensors:
        if tensor.dtype not in DTYPES:
            raise WeightsError(f"tensor {tensor}: this type cannot be averaged")
        # An empty axis makes the size 0, however large the other axes are.
        if not tensor.size and math.prod(filter(None, tensor.shape)) > max_numbers:
            raise WeightsError(f"tensor {tensor}: an empty tensor of impossible shape")
    if len({tensor.name for tensor in layout.tensors}) < len(layout.tensors):
        raise WeightsError("two tensors have one name")
    if not 0 < layout.size <= max_numbers:
        raise WeightsError(f"the model has {layout.size} numbers, expected 1 to {max_numbers}")


def check_finite(part: Vector, start: int, layout: Layout) -> None:
    """Args: part: the vector from index `start` on. Raises: WeightsError, which names the tensor"""
    finite = np.isfinite(part)
    if finite.all():
        return
    position = start + int(np.argmin(finite))
    for tensor in layout.tensors:
        if position < tensor.size:
            raise WeightsError(f"tensor {tensor} holds {part[np.argmin(finite)]} at {position}")
        position -= tensor.size


def _float32(array: Array, start: int, count: int) -> Vector:
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite
        return array[start : start + count].astype(np.float32, copy=False)


def _pairs(weights: Weights) -> Iterator[tuple[str, Array]]:
    """Raises: WeightsError for a value that is no array of numbers"""
    items: Any = weights.items() if isinstance(weights, Mapping) else enumerate(weights)
    for key, value in items:
        array = np.asarray(value)
        if array.dtype.name not in DTYPES:
            raise WeightsError(f"tensor {key} of type {array.dtype.name} cannot be averaged")
        yield str(key), array


def _typed(part: Vector, dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "f":
        return part.astype(dtype, copy=False)
    if dtype.kind == "b":
        return part >= 0.5
    limits = np.iinfo(dtype)
    most = float(limits.max)
    if most > limits.max:  # 64-bit integers: float64 rounds the limit up
        most = float(np.nextafter(most, 0.0))
    return np.clip(np.rint(part.astype(np.float64)), limits.min, most).astype(dtype)
