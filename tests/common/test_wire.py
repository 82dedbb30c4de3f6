"""Frames: round trips, and what every kind of broken byte is answered with."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import wire
from edgeai.errors import ProtocolError
from edgeai.ids import TaskKey, Uid, WorkerName

KEY = TaskKey("models.edgeai.io/default/small")
UID = Uid("5a9c")

FRAMES: dict[str, wire.AnyFrame] = {
    "heldpart": wire.HeldPart({KEY: wire.TaskVersion(UID, 3)}),
    "hello": wire.Hello([1], "i", {KEY: wire.TaskVersion(UID, 3)}),
    "welcome": wire.Welcome(1, 7, "s"),
    "assign": wire.Assign(1, KEY, UID, 3, b"\x80"),
    "withdraw": wire.Withdraw(2, KEY, UID),
    "syncedpart": wire.SyncedPart([KEY]),
    "synced": wire.Synced(3, [KEY]),
    "report": wire.Report(1, UID, WorkerName("digits-edge"), 2, b"\x80"),
    "ack": wire.Ack(9, "no such task"),
    "beat": wire.Beat(),
    "chunk": wire.Chunk(b"abc", False),
}


def whole(frame: wire.AnyFrame) -> bytes:
    (data,) = wire.encode(frame)
    return data


@pytest.mark.parametrize("name", FRAMES)
def test_round_trip(name: str) -> None:
    assert wire.decode(whole(FRAMES[name])) == FRAMES[name]


@pytest.mark.parametrize("name", FRAMES)
def test_truncated_at_every_byte_is_a_protocol_error(name: str) -> None:
    data = whole(FRAMES[name])
    for end in range(len(data)):
        with pytest.raises(ProtocolError) as caught:
            wire.decode(data[:end])
        assert caught.value.code == wire.Close.PROTOCOL


MALFORMED: dict[str, object] = {
    "no map": [1, 2],
    "no type": {"seq": 1},
    "unknown type": {"frame": "reboot"},
    "missing field": {"frame": "assign", "seq": 1},
    "seq is text": {"frame": "ack", "seq": "1"},
    "seq is zero": {"frame": "ack", "seq": 0},
    "seq is huge": {"frame": "ack", "seq": 2**60},
    "body is a map": {
        "frame": "report",
        "seq": 1,
        "uid": "u",
        "worker": "w",
        "attempt": 1,
        "body": {},
    },
    "no worker": {"frame": "report", "seq": 1, "uid": "u", "worker": "", "attempt": 1, "body": b""},
    "no versions": {"frame": "hello", "versions": [], "instance": "i", "held": {}},
    "held is a list": {"frame": "hello", "versions": [1], "instance": "i", "held": []},
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_is_a_protocol_error(name: str) -> None:
    with pytest.raises(ProtocolError, match="malformed frame"):
        wire.decode(msgspec.msgpack.encode(MALFORMED[name]))


def test_the_error_names_the_field() -> None:
    with pytest.raises(ProtocolError, match=r"\$\.seq"):
        wire.decode(msgspec.msgpack.encode({"frame": "ack", "seq": "1"}))


def test_unknown_field_of_a_newer_peer_is_ignored() -> None:
    assert wire.decode(msgspec.msgpack.encode({"frame": "beat", "colour": "red"})) == wire.Beat()


def test_oversized_is_refused_before_decoding() -> None:
    with pytest.raises(ProtocolError) as caught:
        wire.decode(b"\x00" * (wire.MAX_FRAME_BYTES + 1))
    assert caught.value.code == wire.Close.TOO_BIG


@pytest.mark.parametrize("opener", [b"\x91", b"\x81\xa1x", b"\x82\xa5frame\xa4beat\xa1x\x91"])
def test_deep_nesting_is_a_protocol_error(opener: bytes) -> None:
    with pytest.raises(ProtocolError):
        wire.decode(opener + b"\x91" * 100_000)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_frame_or_a_protocol_error(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        wire.decode(data)


BIG = wire.Assign(1, KEY, UID, 3, b"x" * (2 * wire.MAX_FRAME_BYTES))


def test_big_frame_travels_in_chunks() -> None:
    pieces = wire.encode(BIG)
    assert len(pieces) == 3
    assert all(len(piece) <= wire.MAX_FRAME_BYTES for piece in pieces)
    assembler = wire.Assembler()
    assert [assembler.feed(piece) for piece in pieces] == [None, None, BIG]


def test_frame_beyond_the_message_limit_is_not_sent() -> None:
    with pytest.raises(ValueError, match="Assign of"):
        wire.encode(wire.Assign(1, KEY, UID, 3, b"x" * wire.MAX_MESSAGE_BYTES))


@pytest.mark.parametrize("name", sorted(FRAMES.keys() - {"chunk"}))
def test_chunks_split_at_every_byte_join_to_the_same_frame(name: str) -> None:
    data = whole(FRAMES[name])
    for cut in range(1, len(data)):
        assembler = wire.Assembler()
        assert assembler.feed(whole(wire.Chunk(data[:cut], False))) is None
        assert assembler.feed(whole(wire.Chunk(data[cut:], True))) == FRAMES[name]


def test_frame_between_chunks_is_refused() -> None:
    assembler = wire.Assembler()
    assembler.feed(whole(wire.Chunk(b"ab", False)))
    with pytest.raises(ProtocolError, match="between two chunks"):
        assembler.feed(whole(wire.Beat()))


def test_chunk_inside_chunks_is_refused() -> None:
    with pytest.raises(ProtocolError, match="chunk inside chunks"):
        wire.Assembler().feed(whole(wire.Chunk(whole(wire.Chunk(b"a", True)), True)))


def test_endless_chunks_are_cut_off() -> None:
    assembler = wire.Assembler()
    piece = whole(wire.Chunk(b"x" * wire.CHUNK_BYTES, False))
    for _ in range(wire.MAX_MESSAGE_BYTES // wire.CHUNK_BYTES):
        assembler.feed(piece)
    with pytest.raises(ProtocolError, match="chunks beyond"):
        assembler.feed(piece)


def test_empty_chunk_is_refused() -> None:
    with pytest.raises(ProtocolError, match="empty"):
        wire.Assembler().feed(whole(wire.Chunk(b"", False)))


def test_equal_bodies_are_equal_bytes() -> None:
    body = wire.AssignmentBody("ns", "n", {"b": 1, "a": 2})
    assert wire.pack(body) == wire.pack(wire.AssignmentBody("ns", "n", {"b": 1, "a": 2}))
    assert wire.unpack(wire.pack(body), wire.AssignmentBody) == body


def test_malformed_body_names_the_field() -> None:
    with pytest.raises(ProtocolError, match=r"\$\.status"):
        wire.unpack(wire.pack({"status": "asleep"}), wire.ReportBody)


def test_a_body_with_text_that_is_no_utf_8_is_a_protocol_error() -> None:
    body = wire.pack({"phase": "abc"}).replace(b"abc", b"\x80bc")
    with pytest.raises(ProtocolError, match="malformed body"):
        wire.unpack(body, wire.ReportBody)
