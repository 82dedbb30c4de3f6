"""The protocol between trainers and aggregator: paths, messages, pieces.

    POST   /v1/participants/{name}                  Join → Welcome
    POST   /v1/participants/{name}/beat             a beat
    DELETE /v1/participants/{name}                  leave
    GET    /v1/round?participant=&after=&wait=      → RoundState, at once or when it changes
    GET    /v1/rounds/{round}/model/{piece}         → piece
    POST   /v1/rounds/{round}/updates/{name}        Offer → Received
    PUT    /v1/rounds/{round}/updates/{name}/{piece}   piece
    GET    /v1/rounds/{round}/model/{first}-{last}     → bundle of these pieces
    PUT    /v1/rounds/{round}/updates/{name}/{first}-{last}   bundle
    POST   /v1/rounds/{round}/updates/{name}/commit    Commit

Each request names the sender in PARTICIPANT_HEADER, and has the secret of this participant as a
bearer token. INSTANCE_HEADER has the `instance` of the sender's Join. A name in the path or query
must be the sender's. The body of an error is JSON {"error": text}. The status of an error is:

    400    the body was damaged on the way: send it again
    404    the participant has not joined, or is not known any more: join, then ask again
    409    the round is over
    5xx    ask again later
    other  a final refusal

For a Join every error but 5xx is final, for example if another process has taken the name.

A piece is 4 bytes of CRC-32 and then PIECE_NUMBERS numbers; the last piece may have fewer. The
numbers are little-endian and have the aggregator's precision. They are compressed if the
aggregator's Welcome says so. A bundle has at most as many pieces as `max_pieces` of the
Welcome. A bundle of the model may have fewer pieces than the path says. The same Offer again
continues an upload; another Offer begins a new upload. Round 0 is the seed: if the aggregator has
no model, one participant sends the weights with which all participants start.
"""

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from edgeai.worker.errors import WeightsError
from edgeai.worker.federated.layout import Layout, Numbers, Vector, check_finite

INSTANCE_HEADER: Final = "Edgeai-Instance"
PARTICIPANT_HEADER: Final = "Edgeai-Participant"
PIECE_NUMBERS: Final = 1 << 18  # 1 MiB of float32: the largest upload in one request
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024  # a layout may be so large; a piece is far smaller
MAX_METRICS: Final = 64
MAX_NAME_CHARS: Final = 253
MAX_NUMBERS: Final = 2**31  # of a vector
CRC_BYTES: Final = 4
MAX_CRCS_BYTES: Final = CRC_BYTES * (MAX_NUMBERS // PIECE_NUMBERS)
# zlib makes numbers that it cannot compress longer, by less than a thousandth.
MAX_PACKED_BYTES: Final = CRC_BYTES + 4 * PIECE_NUMBERS + 4 * PIECE_NUMBERS // 1000

Precision = Literal["float32", "float16"]
Compression = Literal["none", "zlib"]
Text = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARS)]
Message = TypeVar("Message")
Data = bytes | memoryview
"""Bytes; a memoryview where copying them would cost more than what is done with them."""

_WIRE: Final[dict[str, np.dtype[np.floating[Any]]]] = {
    "float32": np.dtype("<f4"),
    "float16": np.dtype("<f2"),
}


class Damaged(WeightsError):
    """The received bytes differ from the sent bytes. The sender must send them again."""


class Encoding(msgspec.Struct, frozen=True):
    precision: Precision = "float32"
    compression: Compression = "none"


class Join(msgspec.Struct, frozen=True):
    layout: Layout
    instance: Text
    """Random text that identifies the process."""


class Welcome(msgspec.Struct, frozen=True):
    encoding: Encoding
    beat_s: float
    """Period of the beats. A participant that is silent for three periods counts as gone."""
    max_pieces: int = 1
    """Most pieces in one bundle. 1: the aggregator takes no bundles."""


class RoundState(msgspec.Struct, frozen=True):
    """`is_yours`: the aggregator waits for this participant's update (or seed) of this round."""

    round: int
    rounds: int
    is_yours: bool = False
    is_finished: bool = False


class Offer(msgspec.Struct, frozen=True):
    """`checksum` is the SHA-256 of `crcs`."""

    checksum: Text
    crcs: Annotated[bytes, msgspec.Meta(max_length=MAX_CRCS_BYTES)]
    """The CRC-32 of each piece, one after the other."""


class Received(msgspec.Struct, frozen=True):
    pieces: int


class Commit(msgspec.Struct, frozen=True):
    """Completes the update with `checksum`. A Commit without samples has no update."""

    checksum: Text
    samples: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    metrics: Annotated[dict[Text, float], msgspec.Meta(max_length=MAX_METRICS)] = {}


def encode(message: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode(message)


def decode(body: bytes, type_: type[Message]) -> Message:
    """Decode a message. Raises: Damaged, which names the wrong field"""
    try:
        return msgspec.msgpack.decode(body, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"malformed {type_.__name__}: {error}") from error


# ---- pieces -------------------------------------------------------------------------------------


def pieces(numbers: int) -> int:
    return -(-numbers // PIECE_NUMBERS)


def numbers_of(piece: int, numbers: int) -> int:
    """The count of numbers in this piece; 0 beyond the last piece."""
    return max(0, min(PIECE_NUMBERS, numbers - piece * PIECE_NUMBERS))


def itemsize(encoding: Encoding) -> int:
    return _WIRE[encoding.precision].itemsize


def empty(shape: tuple[int, ...], encoding: Encoding) -> npt.NDArray[np.floating[Any]]:
    return np.empty(shape, dtype=_WIRE[encoding.precision])


def to_wire(part: Vector, encoding: Encoding) -> Data:
    """The numbers as bytes in wire precision, not compressed; those of `part` if they can be."""
    with np.errstate(over="ignore"):  # a number beyond float16 becomes infinite, which is refused
        wire = np.ascontiguousarray(part, dtype=_WIRE[encoding.precision])
    return wire.data.cast("B")


def check_fits(vector: Numbers, layout: Layout, encoding: Encoding) -> None:
    """Raises: WeightsError, which names a tensor with a number beyond this precision"""
    if encoding.precision == "float32":
        return
    for start in range(0, len(vector), PIECE_NUMBERS):
        part = to_wire(vector[start : start + PIECE_NUMBERS], encoding)
        try:
            check_finite(from_wire(part, encoding), start, layout)
        except WeightsError as error:
            remedy = "which holds up to 65504: give AggregationServer the encoding float32"
            raise WeightsError(f"{error} as {encoding.precision}, {remedy}") from error


def from_wire(data: Data, encoding: Encoding) -> Vector:
    """The numbers; of float32 they are those of `data` itself, and cannot be changed."""
    return np.frombuffer(data, dtype=_WIRE[encoding.precision]).astype(np.float32, copy=False)


def packed(data: Data, encoding: Encoding) -> bytes:
    """Encode one piece: checksum and numbers, compressed if `encoding` says so."""
    return crc(data) + content(data, encoding)


def content(data: Data, encoding: Encoding) -> Data:
    """What follows the checksum in a packed piece. Without compression this is `data` itself."""
    return zlib.compress(data, 1) if encoding.compression == "zlib" else data


def crc(data: Data) -> bytes:
    return zlib.crc32(data).to_bytes(CRC_BYTES, "big")


def crc_of(piece: int, crcs: bytes) -> bytes:
    return crcs[CRC_BYTES * piece : CRC_BYTES * (piece + 1)]


def unpacked(body: Data, *, numbers: int, encoding: Encoding) -> Data:
    """The content of a packed piece. Raises: Damaged for a wrong length or checksum"""
    size = numbers * itemsize(encoding)
    rest = memoryview(body)[CRC_BYTES:]
    data = _inflated(rest, size) if encoding.compression == "zlib" else rest
    if len(data) != size:
        raise Damaged(f"a piece of {len(data)} bytes, expected {size}: it was cut")
    if crc(data) != body[:CRC_BYTES]:
        raise Damaged("the piece's checksum is another one: it was damaged on the way")
    return data


def _inflated(body: Data, size: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, size + 1)  # the limit bounds the memory
    except zlib.error as error:
        raise Damaged(f"a piece that cannot be decompressed: {error}") from error
    if not inflater.eof and len(data) <= size:
        raise Damaged("a piece that cannot be decompressed: it was cut")
    return data


def offer_of(parts: Iterable[Data]) -> Offer:
    crcs = b"".join(map(crc, parts))
    return Offer(hashlib.sha256(crcs).hexdigest(), crcs)


def check_offer(offer: Offer, numbers: int) -> None:
    """Raises: Damaged for an Offer that an update of `numbers` numbers cannot have"""
    if len(offer.crcs) != CRC_BYTES * pieces(numbers):
        raise Damaged(f"an offer with {len(offer.crcs)} bytes for {pieces(numbers)} pieces")
    if hashlib.sha256(offer.crcs).hexdigest() != offer.checksum:
        raise Damaged("the offer's checksum is another one: it was damaged on the way")


def wire_parts(vector: Numbers, encoding: Encoding) -> Iterator[Data]:
    for start in range(0, len(vector), PIECE_NUMBERS):
        yield to_wire(vector[start : start + PIECE_NUMBERS], encoding)
