"""Every frame, read and written by msgpack, which shares no code with us: both sides agree.

`as_map` says what docs/protocol.md says of a frame: the map that any msgpack library
reads or writes.
"""

import re
from pathlib import Path
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import wire
from edgeai.ids import TaskKey, Uid, WorkerName

DOCUMENT = (Path(__file__).parents[2] / "docs/protocol.md").read_text()

SEQ = st.integers(1, 2**53)
COUNT = st.integers(0, 2**53)
TEXT = st.text(max_size=40) | st.just("ö" * 1024)
NAME = st.text(min_size=1, max_size=253)
BODY = st.binary(max_size=100) | st.just(b"\x00" * 65536)  # bin 8, bin 32
KEY = TEXT.map(TaskKey)
UID = TEXT.map(Uid)

FRAMES: dict[str, st.SearchStrategy[wire.AnyFrame]] = {
    "heldpart": st.builds(
        wire.HeldPart,
        tasks=st.dictionaries(
            KEY, st.builds(wire.TaskVersion, uid=TEXT, version=COUNT), max_size=20
        ),
    ),
    "hello": st.builds(
        wire.Hello,
        versions=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=16),
        instance=st.text(max_size=64),
        tasks=st.dictionaries(
            KEY, st.builds(wire.TaskVersion, uid=TEXT, version=COUNT), max_size=20
        ),
    ),
    "welcome": st.builds(wire.Welcome, version=COUNT, epoch=COUNT, session=TEXT),
    "assign": st.builds(wire.Assign, seq=SEQ, key=KEY, uid=UID, version=COUNT, body=BODY),
    "withdraw": st.builds(wire.Withdraw, seq=SEQ, key=KEY, uid=UID),
    "syncedpart": st.builds(wire.SyncedPart, keys=st.lists(KEY, max_size=40)),
    "synced": st.builds(wire.Synced, seq=SEQ, keys=st.lists(KEY, max_size=40)),
    "report": st.builds(
        wire.Report,
        seq=SEQ,
        uid=UID,
        worker=NAME.map(WorkerName),
        attempt=COUNT,
        body=st.binary(max_size=100) | st.just(b"\x00" * 64 * 1024),
    ),
    "ack": st.builds(wire.Ack, seq=SEQ, refused=TEXT),
    "beat": st.just(wire.Beat()),
    "chunk": st.builds(wire.Chunk, data=BODY, last=st.booleans()),
}


def documented_fields(name: str) -> list[str]:
    """Third column of the table of frames: names, without what stands in braces."""
    (fields,) = re.findall(rf"^\| `{name}` \|[^|]*\|([^|]*)\|", DOCUMENT, re.M)
    return re.findall(r"\w+", re.sub(r"{.*?}", "", fields))


def as_map(name: str, frame: wire.AnyFrame) -> dict[str, Any]:
    attributes = dict(zip(frame.__struct_encode_fields__, frame.__struct_fields__, strict=True))
    values = {field: getattr(frame, attributes[field]) for field in documented_fields(name)}
    if isinstance(frame, wire.Hello | wire.HeldPart):
        values["held"] = {key: [task.uid, task.version] for key, task in frame.tasks.items()}
    return {"frame": name, **values}


def whole(frame: wire.AnyFrame) -> bytes:
    (data,) = wire.encode(frame)
    return data


def test_every_frame_is_here_and_in_the_document() -> None:
    names = {frame.__struct_config__.tag: frame for frame in wire.AnyFrame.__args__}
    assert FRAMES.keys() == names.keys()
    for name, frame in names.items():
        assert documented_fields(name) == [
            field.encode_name for field in msgspec.structs.fields(frame)
        ]


@pytest.mark.parametrize("name", FRAMES)
@given(data=st.data())
def test_msgpack_reads_what_we_write(name: str, data: st.DataObject) -> None:
    frame = data.draw(FRAMES[name])
    assert msgpack.unpackb(whole(frame)) == as_map(name, frame)


@pytest.mark.parametrize("name", FRAMES)
@given(data=st.data())
def test_we_read_what_msgpack_writes(name: str, data: st.DataObject) -> None:
    frame = data.draw(FRAMES[name])
    written = as_map(name, frame)
    fields = data.draw(st.permutations(list(written)))
    assert wire.decode(msgpack.packb({field: written[field] for field in fields})) == frame


def test_msgpack_joins_the_chunks_that_we_write() -> None:
    big = wire.Assign(1, TaskKey("k"), Uid("u"), 3, b"x" * 2 * wire.MAX_FRAME_BYTES)
    pieces = [msgpack.unpackb(piece) for piece in wire.encode(big)]
    assert [piece["last"] for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    joined = b"".join(piece["data"] for piece in pieces)
    assert msgpack.unpackb(joined) == as_map("assign", big)


def test_we_join_the_chunks_that_msgpack_writes() -> None:
    data = msgpack.packb({"frame": "withdraw", "seq": 2, "key": "k", "uid": "u"})
    assembler = wire.Assembler()
    first = msgpack.packb({"frame": "chunk", "data": data[:7], "last": False})
    last = msgpack.packb({"frame": "chunk", "data": data[7:], "last": True})
    assert assembler.feed(first) is None
    assert assembler.feed(last) == wire.Withdraw(2, TaskKey("k"), Uid("u"))


NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
REPORT_BODIES = st.builds(
    wire.ReportBody,
    phase=TEXT,
    status=st.sampled_from(["running", "completed", "failed", "lost"]),
    reason=TEXT,
    task_info=st.dictionaries(TEXT, NUMBERS, max_size=5),
    details=st.dictionaries(TEXT, TEXT, max_size=5),
    observed_at=TEXT,
)
ASSIGNMENT_BODIES = st.builds(
    wire.AssignmentBody,
    namespace=TEXT,
    name=TEXT,
    spec=st.dictionaries(TEXT, TEXT | NUMBERS | st.lists(TEXT), max_size=5),
    workers=st.dictionaries(
        TEXT.map(WorkerName), st.builds(wire.WorkerGrant, secret_hash=TEXT), max_size=5
    ),
)


@given(REPORT_BODIES | ASSIGNMENT_BODIES)
def test_bodies_are_the_same_to_both(body: wire.ReportBody | wire.AssignmentBody) -> None:
    told = msgspec.to_builtins(body)
    assert msgpack.unpackb(wire.pack(body)) == told
    assert wire.unpack(msgpack.packb(told), type(body)) == body


def test_the_bytes_in_the_document_are_those_of_the_frames_beside_them() -> None:
    rows = re.findall(r"^\| `(\{.*\})` \| `([0-9a-f ]+)` \|$", DOCUMENT, re.M)
    assert len(rows) >= 3
    for frame, octets in rows:
        data = bytes.fromhex(octets)
        assert msgpack.unpackb(data) == msgspec.json.decode(frame)
        assert whole(wire.decode(data)) == data
