"""The frames of the relay, and their encoding.

The WebSocket subprotocol is `edgeai.relay.v1`. One frame is one binary message, encoded like the
frames of a session (common.wire). A stream is a pair of byte streams, one each way. The
LocalController numbers the streams, each number once in a connection (docs/protocol.md).
"""

import enum
from typing import Annotated, Final

import msgspec

from common.wire import Beat, Close, Frame, ShortText
from edgeai.errors import ProtocolError
from edgeai.ids import MAX_NAME_CHARS, Uid, WorkerName

SUBPROTOCOL: Final = "edgeai.relay.v1"
MAX_DATA_BYTES: Final = 64 * 1024
MAX_MESSAGE_BYTES: Final = MAX_DATA_BYTES + 1024  # the largest frame is Data
INITIAL_CREDIT: Final = 16 * 1024
"""Bytes that each side may send on a new stream before the first Credit."""
MAX_WINDOW: Final = 1024 * 1024
"""Most bytes that a side may have sent on a stream and the other side has not consumed."""

StreamId = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class Target(msgspec.Struct, frozen=True, array_like=True):
    """A port of a Service, as a worker names it: `host` is `<service>.<namespace>`."""

    host: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Refusal(enum.StrEnum):
    """Why a stream ends at once, in both directions."""

    FORBIDDEN = "forbidden"  # the worker's assignment does not name the target
    BUSY = "busy"  # too many streams
    UNREACHABLE = "unreachable"  # the target refuses, or has no address
    TIMEOUT = "timeout"  # the target takes no connection, or no bytes, within the deadline
    BROKEN = "broken"  # the connection of one side ended without its last bytes


class Open(Frame, frozen=True):
    """LC → GM: connect the new stream to `target` for a worker of the job `uid`."""

    stream: StreamId
    uid: Uid
    worker: Annotated[WorkerName, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    target: Target


class Opened(Frame, frozen=True):
    """GM → LC: the stream is connected to its target."""

    stream: StreamId


class Data(Frame, frozen=True):
    """Both ways: the next bytes of a stream. Each byte takes one byte of credit."""

    stream: StreamId
    data: Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_DATA_BYTES)]


class Credit(Frame, frozen=True):
    """Both ways: the other side may send this number of bytes more."""

    stream: StreamId
    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_WINDOW)]


class End(Frame, frozen=True):
    """Both ways: this side sends no more bytes. The other direction goes on."""

    stream: StreamId


class Reset(Frame, frozen=True):
    """Both ways: the stream is over, in both directions. `reason` is for people."""

    stream: StreamId
    refusal: Refusal
    reason: ShortText = ""


StreamFrame = Opened | Data | Credit | End | Reset
AnyFrame = Open | StreamFrame | Beat

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[AnyFrame]] = msgspec.msgpack.Decoder(AnyFrame)


def encode(frame: AnyFrame) -> bytes:
    return _encoder.encode(frame)


def decode(data: bytes) -> AnyFrame:
    """Raises: ProtocolError, which names the first wrong field"""
    if len(data) > MAX_MESSAGE_BYTES:
        raise ProtocolError(Close.TOO_BIG, f"frame of {len(data)} bytes, limit {MAX_MESSAGE_BYTES}")
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(Close.PROTOCOL, f"malformed frame: {error}") from error
