"""An update on its way, in bundles: several pieces in one request, and how many of them.

A trainer sends and fetches bundles, so that it waits for bytes and not for answers. Both sides need
memory for one piece at a time. In a bundle, 4 bytes with the piece's length precede each piece.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from edgeai.worker.federated import protocol
from edgeai.worker.federated.layout import Numbers
from edgeai.worker.federated.protocol import MAX_PACKED_BYTES, Damaged, Data, Encoding

MAX_PIECES: Final = 64  # in one bundle: a second of a line with 0.5 Gbit/s
MAX_COMPRESSED: Final = 4  # in one that is in memory, because the size of its pieces is not known
LENGTH_BYTES: Final = 4
MAX_BYTES: Final = MAX_PIECES * (LENGTH_BYTES + MAX_PACKED_BYTES)
QUICK_S: Final = 2.0  # after a quicker request, the next one has twice the pieces
MAX_ALONE: Final = 64
SLOW_S: Final = 8.0  # after a slower request, the next one has half the pieces


class Pace:
    """The number of pieces for the next request of one direction.

    A slow line gets one piece per request, because a request has a deadline. After a bundle that
    failed, pieces travel alone, after each failure twice as many: something may let none through.
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


def joined(pieces: Iterable[tuple[bytes, Data]]) -> Iterator[Data]:
    """The parts of a bundle, not copied. Args: pieces: checksum and content of each packed piece"""
    for checksum, content in pieces:
        size = len(checksum) + len(content)
        yield size.to_bytes(LENGTH_BYTES, "big") + checksum
        yield content


def split(read_into: Callable[[memoryview], int]) -> Iterator[memoryview]:
    """The packed pieces of a bundle. They share a buffer: each is valid until the next one.

    Args: read_into: fills a buffer; returns fewer bytes than it has only at the end of the bundle
    Raises: Damaged, the errors of `read_into`
    """
    buffer = memoryview(bytearray(MAX_PACKED_BYTES))
    while count := read_into(buffer[:LENGTH_BYTES]):
        size = int.from_bytes(buffer[:LENGTH_BYTES], "big")
        if count < LENGTH_BYTES or size > MAX_PACKED_BYTES or read_into(buffer[:size]) < size:
            raise Damaged(f"a piece of {size} bytes in a bundle that has less: it was cut")
        yield buffer[:size]


class Update:
    """Encodes each piece when it is sent. `offer` offers the update to the aggregator."""

    def __init__(self, numbers: Numbers, encoding: Encoding) -> None:
        self._numbers, self._encoding = numbers, encoding
        self._is_compressed = encoding.compression != "none"
        self.offer = protocol.offer_of(protocol.wire_parts(numbers, encoding))
        self.pieces = protocol.pieces(len(numbers))

    def most(self, max_pieces: int) -> int:
        """The most pieces in one bundle. Args: max_pieces: as the aggregator says"""
        return min(max_pieces, MAX_COMPRESSED) if self._is_compressed else max_pieces

    def piece(self, piece: int) -> bytes:
        return b"".join(*self.packed(range(piece, piece + 1)))

    def bundle(self, pieces: range) -> "bytes | Bundle":
        bundle = Bundle(self, pieces)
        return b"".join(bundle) if self._is_compressed else bundle

    def packed(self, pieces: range) -> Iterator[tuple[bytes, Data]]:
        for piece in pieces:
            start = piece * protocol.PIECE_NUMBERS
            part = self._numbers[start : start + protocol.PIECE_NUMBERS]
            data = protocol.to_wire(part, self._encoding)
            crc = protocol.crc_of(piece, self.offer.crcs)
            yield crc, protocol.content(data, self._encoding)

    def size(self, piece: int) -> int:
        """The bytes of a packed piece without compression."""
        numbers = protocol.numbers_of(piece, len(self._numbers))
        return protocol.CRC_BYTES + numbers * protocol.itemsize(self._encoding)


class Bundle:
    """The body of a request, of which one piece at a time is in memory. len() is in bytes."""

    def __init__(self, update: Update, pieces: range) -> None:
        self._update, self._pieces = update, pieces

    def __len__(self) -> int:
        return sum(LENGTH_BYTES + self._update.size(piece) for piece in self._pieces)

    def __iter__(self) -> Iterator[Data]:
        return joined(self._update.packed(self._pieces))
