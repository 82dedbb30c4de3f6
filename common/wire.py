"""The frames between GlobalManager and LocalController, and their bytes.

WebSocket subprotocol `edgeai.v1`; one frame is one binary message, a msgpack map whose "frame"
names its type. A frame beyond MAX_FRAME_BYTES travels as Chunks. `body` is msgpack inside `bin`:
a router of frames never decodes it. docs/protocol.md shows the frames in a conversation.

Unknown fields are ignored, so a peer one version ahead can add some; everything else that is
not exactly as declared here is a ProtocolError. Decoding is typed and single-pass, so a hostile
frame builds no objects (docs/decisions/0001).
"""

import enum
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import msgspec

from common.errors import ProtocolError
from common.ids import TaskKey, Uid, WorkerName

SUBPROTOCOL: Final = "edgeai.v1"
VERSIONS: Final = (1,)  # protocol versions this build speaks; docs/protocol.md: how to add one
MAX_FRAME_BYTES: Final = 256 * 1024
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024  # of a chunked frame; Kubernetes caps objects at 1.5 MiB
CHUNK_BYTES: Final = MAX_FRAME_BYTES - 1024  # leaves room for the Chunk's own fields

Seq = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
ShortText = Annotated[str, msgspec.Meta(max_length=1024)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Close(enum.IntEnum):
    """WebSocket close codes that edgeai uses."""

    NORMAL = 1000
    GOING_AWAY = 1001
    TOO_BIG = 1009
    REPLACED = 4001  # a newer session of the same node took over
    PROTOCOL = 4002  # the peer broke the protocol
    REVOKED = 4003  # the credential is no longer good
    TIMEOUT = 4008  # the peer was silent, or did not read, beyond the deadline
    STALE_EPOCH = 4009  # the GlobalManager has been succeeded by a newer one


class Frame(msgspec.Struct, frozen=True, tag_field="frame", tag=str.lower):
    """Root of all frames."""


class Held(msgspec.Struct, frozen=True, array_like=True):
    """What a LocalController holds of one task. A re-created object has another `uid`."""

    uid: ShortText
    version: Count


class Hello(Frame, frozen=True):
    """LC → GM, first frame. `instance` is random and new once the node's ledger was lost."""

    versions: Annotated[list[int], msgspec.Meta(min_length=1, max_length=16)]
    instance: ShortText
    held: dict[TaskKey, Held]


class Welcome(Frame, frozen=True):
    """GM → LC, the answer. `epoch` is the GM's fencing epoch: an LC refuses to go back."""

    version: int
    epoch: Count
    session: ShortText


class Assign(Frame, frozen=True):
    """GM → LC: hold this version of a task."""

    seq: Seq
    key: TaskKey
    uid: Uid
    version: Count
    body: bytes


class Withdraw(Frame, frozen=True):
    """GM → LC: hold this task no longer."""

    seq: Seq
    key: TaskKey
    uid: Uid


class Synced(Frame, frozen=True):
    """GM → LC: `keys` is the whole desired set; what is held and not named is withdrawn."""

    seq: Seq
    keys: list[TaskKey]


class Report(Frame, frozen=True):
    """LC → GM: the latest state of a worker. `attempt` counts the worker's incarnations."""

    seq: Seq
    uid: Uid
    worker: Annotated[WorkerName, msgspec.Meta(min_length=1, max_length=253)]
    attempt: Count
    body: Annotated[bytes, msgspec.Meta(max_length=64 * 1024)]


class Ack(Frame, frozen=True):
    """Both ways: frame `seq` is durable on this side, or `refused` says why it never will be."""

    seq: Seq
    refused: ShortText = ""


class Beat(Frame, frozen=True):
    """Both ways: this side is alive."""


class Chunk(Frame, frozen=True):
    """A piece of a frame that is too big for one message; pieces are never interleaved."""

    data: bytes
    last: bool


AnyFrame = Hello | Welcome | Assign | Withdraw | Synced | Report | Ack | Beat | Chunk

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[AnyFrame]] = msgspec.msgpack.Decoder(AnyFrame)


def encode(frame: AnyFrame) -> list[bytes]:
    """The messages that carry `frame`: one, or several Chunks.

    Raises: ValueError when it is larger than MAX_MESSAGE_BYTES; the caller bounds its bodies.
    """
    data = _encoder.encode(frame)
    if len(data) <= MAX_FRAME_BYTES:
        return [data]
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"{type(frame).__name__} of {len(data)} bytes, limit {MAX_MESSAGE_BYTES}")
    return [_encoder.encode(chunk) for chunk in split(data, CHUNK_BYTES)]


def split(data: bytes, size: int) -> Iterator[Chunk]:
    for start in range(0, len(data), size):
        yield Chunk(data=data[start : start + size], last=start + size >= len(data))


def decode(data: bytes) -> AnyFrame:
    """One message into one frame.

    Raises: ProtocolError, with the path of the first wrong field
    """
    if len(data) > MAX_FRAME_BYTES:
        raise ProtocolError(Close.TOO_BIG, f"frame of {len(data)} bytes, limit {MAX_FRAME_BYTES}")
    return _decode(data)


def _decode(data: bytes) -> AnyFrame:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(Close.PROTOCOL, f"malformed frame: {error}") from error


class Assembler:
    """Joins Chunks; everything else passes through. Bounded by MAX_MESSAGE_BYTES."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size_bytes = 0

    def feed(self, data: bytes) -> AnyFrame | None:
        """The frame that `data` completes, or None while Chunks are missing.

        Raises: ProtocolError
        """
        frame = decode(data)
        if not isinstance(frame, Chunk):
            if self._parts:
                raise ProtocolError(Close.PROTOCOL, "frame between two chunks")
            return frame
        return self._join(frame)

    def _join(self, chunk: Chunk) -> AnyFrame | None:
        self._parts.append(chunk.data)
        self._size_bytes += len(chunk.data)
        # An empty piece would grow the list without growing the size.
        if not chunk.data or self._size_bytes > MAX_MESSAGE_BYTES:
            raise ProtocolError(Close.TOO_BIG, f"chunks beyond {MAX_MESSAGE_BYTES} bytes, or empty")
        if not chunk.last:
            return None
        whole = b"".join(self._parts)
        self._parts, self._size_bytes = [], 0
        frame = _decode(whole)
        if isinstance(frame, Chunk):
            raise ProtocolError(Close.PROTOCOL, "chunk inside chunks")
        return frame


def pack(body: Any) -> bytes:
    """A body's bytes. Map order is kept, so equal bodies are equal bytes."""
    return _encoder.encode(body)


def unpack(body: bytes, type_: type) -> Any:
    """A body as `type_`. Raises: ProtocolError with the path of the first wrong field."""
    try:
        return msgspec.msgpack.decode(body, type=type_)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ProtocolError(Close.PROTOCOL, f"malformed body: {error}") from error


# ---- bodies -------------------------------------------------------------------------------------


class WorkerGrant(msgspec.Struct, frozen=True, rename="camel"):
    """Who may report as a worker: `secret_hash` = sha256 hex of the secret in its LC_SERVER.

    "" is the hash of no secret: only the LocalController itself reports as this worker.
    """

    secret_hash: str


THE_NODE_ITSELF: Final = WorkerGrant("")


class AssignmentBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Body of Assign: what an edge must know of one task.

    `spec` is the kind's own excerpt of the CR (no pod templates, no secrets); the LC looks into
    it only in the hook of that kind, if there is one. `workers` may report from this node.
    """

    namespace: str
    name: str
    spec: dict[str, Any] = {}
    workers: dict[WorkerName, WorkerGrant] = {}


WorkerStatus = Literal["running", "completed", "failed", "lost"]
TERMINAL: Final = frozenset({"completed", "failed"})


class ReportBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Body of Report: newest state of a worker, totals over all its incarnations.

    `phase` is what the worker does ("inference"), `status` how it is. The LC says "lost" of one
    that fell silent or died without a report; `reason` says which of these. `task_info` is the
    proposal's taskInfo: numbers by name; `details` any further text.
    """

    phase: str = ""
    status: WorkerStatus = "running"
    reason: str = ""
    task_info: dict[str, float | int] = {}
    details: dict[str, str] = {}
    observed_at: str = ""  # RFC 3339, node's clock; for people, never compared
