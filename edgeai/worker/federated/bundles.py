"""Bundles: several pieces in one request, and how many of them.

A trainer sends and fetches bundles, so that it waits less often for an answer. A receiver needs
memory for one piece at a time. In a bundle, 4 bytes with the piece's length precede each piece.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from edgeai.worker.federated.protocol import MAX_PACKED_BYTES, Damaged, Data

MAX_PIECES: Final = 4  # in one bundle; more of them are no quicker, and take memory
QUICK_S: Final = 2.0  # after a quicker request, the next one has twice the pieces
MAX_ALONE: Final = 64
SLOW_S: Final = 8.0  # after a slower request, the next one has half the pieces
_LENGTH_BYTES: Final = 4


class Pace:
    """The number of pieces for the next request of one direction.

    A slow line gets one piece per request, because a request has a deadline. After a bundle that
    failed, pieces travel alone, after each failure twice as many of them: something between may
    let no bundles through.
    """

    def __init__(self) -> None:
        self._pieces = 1
        self._alone = 0  # number of the next pieces that must travel alone
        self._alone_after_failure = 1

    def pieces(self, most: int) -> int:
        return max(1, min(self._pieces, most))

    def note_success(self, seconds: float) -> None:
        if self._alone:
            self._alone -= 1
        elif seconds < QUICK_S:
            self._pieces = min(2 * self._pieces, MAX_PIECES)
        elif seconds > SLOW_S:
            self._pieces = max(1, self._pieces // 2)

    def note_failure(self) -> None:
        self._pieces, self._alone = 1, self._alone_after_failure
        self._alone_after_failure = min(2 * self._alone_after_failure, MAX_ALONE)


def joined(packed_pieces: Iterable[bytes]) -> list[bytes]:
    """The parts of a bundle, not copied."""
    return [part for piece in packed_pieces for part in (_length_of(piece), piece)]


def _length_of(piece: bytes) -> bytes:
    return len(piece).to_bytes(_LENGTH_BYTES, "big")


def split(length: int, reader: Callable[[int], Data]) -> Iterator[Data]:
    """The packed pieces of a bundle with `length` bytes. `reader` gives a number of the next bytes.

    Raises: Damaged, the errors of `reader`
    """
    while length:
        size = int.from_bytes(reader(min(length, _LENGTH_BYTES)), "big")
        length -= _LENGTH_BYTES + size
        if length < 0 or size > MAX_PACKED_BYTES:
            raise Damaged(f"a piece of {size} bytes in a bundle that has less: it was cut")
        yield reader(size)


def split_bytes(bundle: bytes) -> Iterator[Data]:
    """The packed pieces of a whole bundle, not copied. Raises: Damaged"""
    rest = memoryview(bundle)

    def read(count: int) -> Data:
        nonlocal rest
        part, rest = rest[:count], rest[count:]
        return part

    return split(len(bundle), read)
