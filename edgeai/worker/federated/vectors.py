"""Reads and writes ranges of float32 vectors in files."""

from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np

from edgeai.worker.federated.layout import Vector

SLICE_BYTES: Final = 8 * 1024 * 1024  # what is joined is then in the cache of a processor
MIN_SLICE_NUMBERS: Final = 4096
_FLOAT_BYTES: Final = 4


def read(file: BinaryIO, start: int, count: int) -> Vector:
    file.seek(start * _FLOAT_BYTES)
    return np.frombuffer(file.read(count * _FLOAT_BYTES), dtype="<f4")


def to_bytes(vector: Vector) -> bytes:
    return vector.astype("<f4", copy=False).tobytes()


def ranges(numbers: int, step: int) -> Iterator[tuple[int, int]]:
    """Split `numbers` numbers into ranges. Yields: (start, count) of each range"""
    for start in range(0, numbers, step):
        yield start, min(step, numbers - start)


def slice_numbers(updates: int, slice_bytes: int) -> int:
    """The number of weights that are in memory at a time, for each of `updates` updates.

    Args: slice_bytes: limit for one slice of all updates together
    """
    return max(MIN_SLICE_NUMBERS, slice_bytes // (_FLOAT_BYTES * (updates + 4)))
