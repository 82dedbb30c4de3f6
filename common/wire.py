"""The frames between GlobalManager (GM) and LocalController (LC), and their encoding.

The WebSocket subprotocol is `edgeai.v1`. One frame is one binary message: a msgpack map whose field
"frame" names the type of the frame. A frame larger than MAX_FRAME_BYTES is sent as several Chunks.
The field `body` is msgpack inside a `bin` value, so code that only forwards frames need not decode
the body. docs/protocol.md shows the frames of an example conversation.

The decoder ignores unknown fields, so a newer peer can add fields. Any other difference from the
declarations in this module is a ProtocolError. Decoding is typed and takes one pass, so a hostile
frame creates no other objects (docs/decisions/0001).
"""

import enum
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Literal

import msgspec

from edgeai.errors import ProtocolError
from edgeai.ids import TaskKey, Uid, WorkerName

SUBPROTOCOL: Final = "edgeai.v1"
AUDIENCE: Final = "edgeai-globalmanager"  # of the ServiceAccount tokens that LocalControllers show
VERSIONS: Final = (1,)  # protocol versions of this build; docs/protocol.md says how to add one
MAX_FRAME_BYTES: Final = 256 * 1024
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024  # of a chunked frame; Kubernetes objects have 1.5 MiB
CHUNK_BYTES: Final = MAX_FRAME_BYTES - 1024  # leaves room for the Chunk's own fields
PART_BYTES: Final = 3 * 1024 * 1024  # of names in one frame; a larger set is sent in parts
MAX_HELD: Final = 32_768  # tasks of one node

_MAX_HELD_BYTES: Final = 80  # of a uid and a version beside the key

Seq = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
ShortText = Annotated[str, msgspec.Meta(max_length=1024)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


MAX_REASON_BYTES: Final = 123
"""Longest reason of a close frame, RFC 6455 §5.5."""


class Close(enum.IntEnum):
    """WebSocket close codes that edgeai uses."""

    NORMAL = 1000
    GOING_AWAY = 1001
    TOO_BIG = 1009
    REPLACED = 4001  # a newer session of the same node took over
    PROTOCOL = 4002  # the peer broke the protocol
    REVOKED = 4003  # the credential is not valid any more
    TIMEOUT = 4008  # the peer sent nothing, or read nothing, until the deadline
    STALE_EPOCH = 4009  # another GlobalManager has a larger epoch
    MOVED = 4010  # another replica has fewer sessions; the reason is its URL, or empty


class Frame(msgspec.Struct, frozen=True, tag_field="frame", tag=str.lower):
    """Base class of all frames."""


class TaskVersion(msgspec.Struct, frozen=True, array_like=True):
    """The version of a task that a LocalController holds. A re-created job has another `uid`."""

    uid: ShortText
    version: Count


HeldTasks = Annotated[dict[TaskKey, TaskVersion], msgspec.Meta(max_length=MAX_HELD)]


class HeldPart(Frame, frozen=True):
    """LC → GM, before Hello: some tasks that this LC holds, where one frame is too small."""

    tasks: HeldTasks = msgspec.field(name="held")


class Hello(Frame, frozen=True):
    """LC → GM: the first frame, or the first one after HeldParts. `instance` is the ledger's random
    id; a new ledger has a new id. `tasks` are those that no HeldPart has named.
    """

    versions: Annotated[list[int], msgspec.Meta(min_length=1, max_length=16)]
    instance: Annotated[str, msgspec.Meta(max_length=64)]
    tasks: HeldTasks = msgspec.field(name="held")


class Welcome(Frame, frozen=True):
    """GM → LC: the answer to Hello. The LC refuses an `epoch` smaller than one that it has seen."""

    version: int
    epoch: Count
    session: ShortText


class Assign(Frame, frozen=True):
    """GM → LC: the LC must hold this version of a task."""

    seq: Seq
    key: TaskKey
    uid: Uid
    version: Count
    body: bytes


class Withdraw(Frame, frozen=True):
    """GM → LC: the LC must drop this task."""

    seq: Seq
    key: TaskKey
    uid: Uid


class SyncedPart(Frame, frozen=True):
    """GM → LC, before Synced: a part of the desired set, where one frame is too small for it."""

    keys: list[TaskKey]


class Synced(Frame, frozen=True):
    """GM → LC: the desired set is `keys` with those of SyncedParts. The LC drops all others."""

    seq: Seq
    keys: list[TaskKey]


class Report(Frame, frozen=True):
    """LC → GM: the latest state of a worker. `attempt` grows when the worker's process restarts.
    `revision` grows with each report of this LC's ledger; 0: the LC is too old to send it.
    """

    seq: Seq
    uid: Uid
    worker: Annotated[WorkerName, msgspec.Meta(min_length=1, max_length=253)]
    attempt: Count
    body: Annotated[bytes, msgspec.Meta(max_length=64 * 1024)]
    revision: Count = 0


class Ack(Frame, frozen=True):
    """Both ways: this side holds frame `seq` durably, or refuses it; `refused` says why."""

    seq: Seq
    refused: ShortText = ""


class Beat(Frame, frozen=True):
    """Both ways: this side is alive."""


class Chunk(Frame, frozen=True):
    """One piece of a frame that is too large for one message. No frame comes between two pieces."""

    data: bytes
    last: bool


AnyFrame = (
    HeldPart
    | Hello
    | Welcome
    | Assign
    | Withdraw
    | SyncedPart
    | Synced
    | Report
    | Ack
    | Beat
    | Chunk
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[AnyFrame]] = msgspec.msgpack.Decoder(AnyFrame)


def encode(frame: AnyFrame) -> list[bytes]:
    """Encode `frame` as one message, or as several Chunks.

    Raises: ValueError if the frame is larger than MAX_MESSAGE_BYTES; callers limit their bodies
    """
    data = _encoder.encode(frame)
    if len(data) <= MAX_FRAME_BYTES:
        return [data]
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"{type(frame).__name__} of {len(data)} bytes, limit {MAX_MESSAGE_BYTES}")
    return [_encoder.encode(chunk) for chunk in split(data, CHUNK_BYTES)]


def parts_of(keys: Iterable[TaskKey]) -> list[list[TaskKey]]:
    """The keys in parts that fit into one frame each, at least one part."""
    parts: list[list[TaskKey]] = [[]]
    size_bytes = 0
    for key in keys:
        added_bytes = len(key.encode()) + _MAX_HELD_BYTES
        if parts[-1] and size_bytes + added_bytes > PART_BYTES:
            parts.append([])
            size_bytes = 0
        parts[-1].append(key)
        size_bytes += added_bytes
    return parts


def split(data: bytes, size: int) -> Iterator[Chunk]:
    for start in range(0, len(data), size):
        yield Chunk(data=data[start : start + size], last=start + size >= len(data))


def decode(data: bytes) -> AnyFrame:
    """Decode one message. Raises: ProtocolError, which names the first wrong field"""
    if len(data) > MAX_FRAME_BYTES:
        raise ProtocolError(Close.TOO_BIG, f"frame of {len(data)} bytes, limit {MAX_FRAME_BYTES}")
    return _decode(data)


def _decode(data: bytes) -> AnyFrame:
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(Close.PROTOCOL, f"malformed frame: {error}") from error


class Assembler:
    """Joins Chunks into frames of at most MAX_MESSAGE_BYTES. Returns all other frames unchanged."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size_bytes = 0

    def feed(self, data: bytes) -> AnyFrame | None:
        """The frame that is now complete; None: Chunks are missing. Raises: ProtocolError"""
        frame = decode(data)
        if not isinstance(frame, Chunk):
            if self._parts:
                raise ProtocolError(Close.PROTOCOL, "frame between two chunks")
            return frame
        return self._join(frame)

    def _join(self, chunk: Chunk) -> AnyFrame | None:
        self._parts.append(chunk.data)
        self._size_bytes += len(chunk.data)
        # Refuse empty pieces, which make the list of parts longer without adding to its size.
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
    """Encode a body. Maps keep their order, so equal bodies have equal bytes."""
    return _encoder.encode(body)


def unpack(body: bytes, type_: type) -> Any:
    """Decode a body as `type_`. Raises: ProtocolError, which names the first wrong field"""
    try:
        return msgspec.msgpack.decode(body, type=type_)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProtocolError(Close.PROTOCOL, f"malformed body: {error}") from error


# ---- bodies -------------------------------------------------------------------------------------


class WorkerGrant(msgspec.Struct, frozen=True, rename="camel"):
    """The right to report as a worker. The secret in the worker's LC_SERVER gives this right.

    `secret_hash` is the sha256 of the secret, in hex. If `secret_hash` is "", no secret gives the
    right: only the LocalController itself reports as this worker.
    """

    secret_hash: str


THE_NODE_ITSELF: Final = WorkerGrant("")


class AssignmentBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Body of Assign: the facts about one task that the LC needs.

    `spec` contains the fields of the job's spec that the kind selects, without pod templates and
    secrets. In the LC only a hook of this kind reads `spec`. `workers` may report from this node.
    """

    namespace: str
    name: str
    spec: dict[str, Any] = {}
    workers: dict[WorkerName, WorkerGrant] = {}


POD_UID: Final = "podUid"
"""Key of ReportBody.details: metadata.uid of the pod that the report is about. The LocalController
sets the key for a worker that never reports itself."""
POD_CREATED_AT: Final = "podCreatedAt"
"""Key of ReportBody.details: the pod's creationTimestamp, which orders a worker's pods."""
EXIT_CODES: Final = "exitCodes"
"""Key of ReportBody.details: the exit codes of the ended containers, "main=137,side=0"."""

WorkerStatus = Literal["running", "completed", "failed", "lost"]
TERMINAL: Final = frozenset({"completed", "failed"})


class ReportBody(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Body of Report: the newest state of a worker, with totals over all its attempts.

    `phase` names the worker's current work, for example "inference". The LC sets `status` to "lost"
    if the worker became silent, or died without a last message; `reason` says which. `task_info`
    has numbers by name (taskInfo of the proposal). `details` has texts by name.
    """

    phase: str = ""
    status: WorkerStatus = "running"
    reason: str = ""
    task_info: dict[str, float | int] = {}
    details: dict[str, str] = {}
    observed_at: str = ""  # RFC 3339, the node's clock; for people only
