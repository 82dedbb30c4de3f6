"""An update as it travels: in pieces, each of which is encoded when it is sent."""

from collections.abc import Iterator
from typing import Final

from edgeai.worker.federated import bundles, protocol
from edgeai.worker.federated.layout import Numbers
from edgeai.worker.federated.protocol import Data, Encoding

MAX_COMPRESSED: Final = 4  # pieces of a bundle, which are in memory because their size is not known


class Update:
    """`offer`: what offers it to the aggregator

    Args: takes_crcs: whether the aggregator takes an Offer with the CRC-32 of each piece
    """

    def __init__(self, numbers: Numbers, encoding: Encoding, *, takes_crcs: bool) -> None:
        self._numbers, self._encoding = numbers, encoding
        self._is_compressed = encoding.compression != "none"
        self.offer = protocol.offer_of(
            protocol.wire_parts(numbers, encoding), takes_crcs=takes_crcs
        )
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
        """Checksum and content of these pieces."""
        for piece in pieces:
            start = piece * protocol.PIECE_NUMBERS
            part = self._numbers[start : start + protocol.PIECE_NUMBERS]
            data = protocol.to_wire(part, self._encoding)
            crc = protocol.crc_of(piece, self.offer.crcs) or protocol.crc(data)
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
        return sum(bundles.LENGTH_BYTES + self._update.size(piece) for piece in self._pieces)

    def __iter__(self) -> Iterator[Data]:
        return bundles.joined(self._update.packed(self._pieces))
