"""Every frame of the relay is as docs/protocol.md says, for any msgpack library."""

from typing import Any

import msgpack
import pytest

from common.relay import frames
from common.relay.frames import MAX_DATA_BYTES, MAX_MESSAGE_BYTES, Refusal, Target
from edgeai.errors import ProtocolError
from edgeai.ids import Uid, WorkerName
from tests.common.test_wire_msgpack import documented_fields

FRAMES: dict[str, tuple[frames.AnyFrame, dict[str, Any]]] = {
    "open": (
        frames.Open(1, Uid("u"), WorkerName("w"), Target("a.ns", 5000)),
        {"stream": 1, "uid": "u", "worker": "w", "target": ["a.ns", 5000]},
    ),
    "opened": (frames.Opened(1), {"stream": 1}),
    "data": (frames.Data(1, b"x"), {"stream": 1, "data": b"x"}),
    "credit": (frames.Credit(1, 5), {"stream": 1, "size": 5}),
    "end": (frames.End(1), {"stream": 1}),
    "reset": (
        frames.Reset(1, Refusal.BUSY, "full"),
        {"stream": 1, "refusal": "busy", "reason": "full"},
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_msgpack_reads_and_writes_the_documented_fields(name: str) -> None:
    frame, fields = FRAMES[name]
    assert list(fields) == documented_fields(name)
    assert msgpack.unpackb(frames.encode(frame)) == {"frame": name, **fields}
    assert frames.decode(msgpack.packb({"frame": name, **fields})) == frame


def test_every_frame_is_here() -> None:
    tags = {each.__struct_config__.tag for each in frames.AnyFrame.__args__}
    assert tags == {*FRAMES, "beat"}


def test_the_largest_data_fits_into_a_message() -> None:
    largest = frames.encode(frames.Data(2**53, bytes(MAX_DATA_BYTES)))
    assert len(largest) <= MAX_MESSAGE_BYTES
    frames.decode(largest)


@pytest.mark.parametrize(
    "fields",
    [
        {"frame": "data", "stream": 1, "data": bytes(MAX_DATA_BYTES + 1)},
        {"frame": "data", "stream": 1, "data": b""},
        {"frame": "data", "stream": 0, "data": b"x"},
        {"frame": "open", "stream": 1, "uid": "u", "worker": "w", "target": ["h" * 254, 1]},
        {"frame": "open", "stream": 1, "uid": "u", "worker": "w", "target": ["h", 65536]},
        {"frame": "credit", "stream": 1, "size": -1},
        {"frame": "reset", "stream": 1, "refusal": "because"},
        {"frame": "assign"},
    ],
)
def test_a_malformed_frame_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        frames.decode(msgpack.packb(fields))
