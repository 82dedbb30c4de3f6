"""Several pieces in one request: when they travel so, and what a failure costs."""

import http.client
import io
import logging
import socket
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from edgeai.worker.errors import FederationError
from edgeai.worker.federated import bundles, protocol
from edgeai.worker.federated.bundles import MAX_PIECES, QUICK_S, SLOW_S, Pace
from edgeai.worker.federated.client import AggregatorClient
from edgeai.worker.federated.layout import FlatWeights, Vector, layout_of
from edgeai.worker.federated.protocol import Commit, Damaged, Encoding, Received, Welcome
from tests.edgeai.worker.federated.conftest import Federation, MakeFederation, head, own
from tests.edgeai.worker.federated.scripted import JOIN, LOST, Answer, Asked, ScriptedAggregator
from tests.edgeai.worker.federated.test_federation import settings
from tests.edgeai.worker.federated.test_server import begun, join, layout, send, told, vector
from tests.support.waiting import PATIENCE_S, eventually

PIECES = 10
SIZE = (PIECES - 1) * protocol.PIECE_NUMBERS + 5
UPDATE = "/v1/rounds/1/updates/a"
PLAIN = Encoding()


@pytest.fixture
def aggregator(aggregator: ScriptedAggregator) -> ScriptedAggregator:
    """Takes bundles."""
    aggregator.welcome = Welcome(PLAIN, beat_s=3600.0, max_pieces=MAX_PIECES)
    return aggregator


def split(bundle: bytes) -> list[bytes]:
    return [bytes(piece) for piece in bundles.split(io.BytesIO(bundle).readinto)]


def joined(pieces: list[bytes]) -> bytes:
    return b"".join(bundles.joined((piece[:4], piece[4:]) for piece in pieces))


def numbers(size: int = SIZE) -> Vector:
    """Each piece has other numbers."""
    return (np.arange(size) // 1000 % 1009).astype(np.float32)


def sent_by(aggregator: ScriptedAggregator, client: AggregatorClient) -> list[str]:
    client.join(layout(SIZE))
    client.send(1, numbers(), commit=Commit("", 1))
    return [what for what in aggregator.updates() if what.startswith("PUT") or what == "POST "]


# ---- how many -----------------------------------------------------------------------------------


def test_quick_requests_have_more_pieces_and_slow_ones_fewer() -> None:
    pace, seen = Pace(), []
    slow = [SLOW_S + 1] * 7
    for seconds in (*[0.1] * 7, QUICK_S, SLOW_S, *slow, 0.1):
        pace.note_success(seconds)
        seen.append(pace.pieces(100))
    assert MAX_PIECES == 64
    assert seen == [2, 4, 8, 16, 32, 64, 64, 64, 64, 32, 16, 8, 4, 2, 1, 1, 2]
    assert pace.pieces(1) == 1


def test_after_each_failure_more_pieces_travel_alone() -> None:
    pace, alone = Pace(), []
    for _ in range(9):
        pace.note_failure()
        alone.append(0)
        while pace.pieces(100) == 1:
            pace.note_success(0.1)
            alone[-1] += 1
    assert alone == [2, 3, 5, 9, 17, 33, 65, 65, 65]


def test_an_update_begins_with_a_piece_and_goes_on_with_bundles(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    assert sent_by(aggregator, client) == ["POST ", "PUT /0", "PUT /1-2", "PUT /3-6", "PUT /7-9"]
    bodies = [asked.body for asked in aggregator.asked if asked.what == f"PUT {UPDATE}/7-9"]
    assert protocol.unpacked(split(bodies[0])[2], numbers=5, encoding=PLAIN) == (
        numbers()[-5:].tobytes()
    )


@pytest.mark.parametrize(
    "encoding",
    [PLAIN, Encoding("float16"), Encoding(compression="zlib")],
    ids=["float32", "float16", "zlib"],
)
def test_a_federation_with_bundles_has_the_numbers_that_were_sent(
    federation: MakeFederation, encoding: Encoding, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "edgeai.worker.bounded_server")
    made = federation(settings=settings(1), encoding=encoding)
    client = AggregatorClient(made.server.address, name="a", secret=own("a"))
    client.join(layout(SIZE))
    client.send(0, numbers(), commit=Commit("", 1))
    assert np.array_equal(client.fetch(1, SIZE), numbers())
    client.close()
    for request in ("PUT /v1/rounds/0/updates/a/3-6 ", "GET /v1/rounds/1/model/3-6 "):
        assert f'{request}HTTP/1.1" 200' in caplog.text


# ---- other releases -----------------------------------------------------------------------------


def test_an_aggregator_of_an_earlier_release_gets_pieces_only(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    welcome = {"encoding": {"precision": "float32"}, "beat_s": 3600.0}
    aggregator.script = lambda asked: (
        (200, msgspec.msgpack.encode(welcome)) if asked.what == JOIN else None
    )
    assert sent_by(aggregator, client) == ["POST ", *(f"PUT /{n}" for n in range(PIECES))]


def test_an_aggregator_of_a_later_release_gets_bundles_of_this_one(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    welcome = {**msgspec.to_builtins(aggregator.welcome), "max_pieces": 1000, "news": [1]}
    aggregator.script = lambda asked: (
        (200, msgspec.msgpack.encode(welcome)) if asked.what == JOIN else None
    )
    assert "PUT /3-6" in sent_by(aggregator, client)


def test_an_aggregator_that_is_replaced_by_an_earlier_release_gets_pieces_from_then_on(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    """The earlier release does not know the process, and has no such paths."""
    unknown: Answer = (404, b'{"error": "join first"}')
    is_known = [True]

    def script(asked: Asked) -> Answer | None:
        if asked.what.endswith("/1-2"):
            aggregator.welcome = Welcome(PLAIN, beat_s=3600.0)
            is_known[0] = False
        if asked.what == JOIN:
            is_known[0] = True
        return None if is_known[0] else unknown

    aggregator.script = script
    sent = sent_by(aggregator, client)
    assert [what for what in sent if "-" in what] == ["PUT /1-2"]
    assert sent[-PIECES:] == [f"PUT /{n}" for n in range(PIECES)]


class EarlierWelcome(msgspec.Struct, frozen=True):
    encoding: Encoding
    beat_s: float


def test_a_trainer_of_an_earlier_release_takes_part_with_pieces(
    federation: MakeFederation,
) -> None:
    made = federation(settings=settings(1))
    assert told(join(made, "a"), EarlierWelcome).encoding == PLAIN
    assert send(made, "a", vector(3), round_=0).status == 200
    model = made.ask("GET", "/v1/rounds/1/model/0").body
    assert protocol.unpacked(model, numbers=3, encoding=PLAIN) == vector(3).tobytes()


# ---- failures -----------------------------------------------------------------------------------


def test_after_a_bundle_that_failed_what_is_missing_goes_on_with_one_piece(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    """Of the bundle 3-6, the piece 3 had arrived when the line was cut."""
    lost = [LOST]

    def script(asked: Asked) -> Answer | None:
        if asked.what.endswith("/3-6") and lost:
            return lost.pop()
        if asked.what == f"POST {UPDATE}":
            return 200, protocol.encode(Received(0 if lost else 4))
        return None

    aggregator.script = script
    sent = sent_by(aggregator, client)
    assert sent[3:] == ["PUT /3-6", "POST ", "PUT /4", "PUT /5", "PUT /6-7", "PUT /8-9"]


def test_what_is_whole_in_a_damaged_bundle_of_the_model_is_kept(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    """The rest comes again, though not in the bundle that this aggregator always cuts."""
    parts = [protocol.packed(part, PLAIN) for part in protocol.wire_parts(numbers(), PLAIN)]

    def script(asked: Asked) -> Answer | None:
        if "/model/" not in asked.what:
            return None
        first, _, last = asked.what.rpartition("/")[2].partition("-")
        if not last:
            return 200, parts[int(first)]
        return 200, joined(parts[int(first) : int(last) + 1])[:-1]

    aggregator.script = script
    client.join(layout(SIZE))
    assert np.array_equal(client.fetch(1, SIZE), numbers())
    fetched = [a.what.rpartition("/")[2] for a in aggregator.asked if "/model/" in a.what]
    assert fetched[:4] == ["0", "1-2", "2-5", "5-9"]


@pytest.mark.parametrize("bundle", [b"", b"\0\0", b"\0\0\0\5abcd"], ids=["none", "head", "piece"])
def test_a_bundle_without_a_whole_piece_is_fetched_as_pieces(
    aggregator: ScriptedAggregator, client: AggregatorClient, bundle: bytes
) -> None:
    piece = protocol.packed(next(protocol.wire_parts(numbers(), PLAIN)), PLAIN)
    size = 3 * protocol.PIECE_NUMBERS

    def script(asked: Asked) -> Answer | None:
        if "/model/" not in asked.what:
            return None
        return 200, bundle if "-" in asked.what else piece

    aggregator.script = script
    client.join(layout(size))
    first = numbers()[: protocol.PIECE_NUMBERS]
    assert np.array_equal(client.fetch(1, size), np.tile(first, 3))


def under_way(federation: Federation, pieces: list[bytes]) -> bytes:
    """The head and the body of a request with these pieces of participant a's update."""
    body = joined(pieces)
    path = f"{UPDATE}/0-{len(pieces) - 1}"
    return f"PUT {path} HTTP/1.1\r\n{head('a')}Content-Length: {len(body)}\r\n\r\n".encode() + body


def offered(federation: MakeFederation) -> tuple[Federation, list[bytes], Callable[[], int]]:
    """An aggregator that waits for an update of a, its pieces, and how many of them arrived."""
    made = federation(settings=settings(1))
    assert join(made, "a", numbers=SIZE).status == 200
    assert send(made, "a", np.zeros(SIZE, np.float32), round_=0).status == 200
    parts = list(protocol.wire_parts(numbers(), PLAIN))
    offer = protocol.encode(protocol.offer_of(parts))

    def arrived() -> int:
        return told(made.ask("POST", UPDATE, offer), Received).pieces

    assert arrived() == 0
    return made, [protocol.packed(part, PLAIN) for part in parts], arrived


def test_a_line_that_is_cut_in_a_bundle_costs_the_piece_under_way(
    federation: MakeFederation,
) -> None:
    """And nobody holds more than this piece: the two before it are on the disk."""
    made, pieces, arrived = offered(federation)
    with socket.create_connection(made.server.address, PATIENCE_S) as line:
        line.sendall(under_way(made, pieces)[: 2 * len(pieces[0]) + 5000])
        eventually("two pieces on the disk", lambda: arrived() == 2)
    assert arrived() == 2


def refused(federation: Federation, request: bytes) -> bytes:
    """The answer, after which the connection ends."""
    with socket.create_connection(federation.server.address, PATIENCE_S) as line:
        line.sendall(request)
        with line.makefile("rb") as answer:
            return answer.read()


def test_a_damaged_piece_ends_its_bundle_and_what_came_before_stays(
    federation: MakeFederation,
) -> None:
    """Nothing of the rest is taken for another request."""
    made, pieces, arrived = offered(federation)
    answer = refused(made, under_way(made, [pieces[0], bytes(len(pieces[1])), *pieces[2:]]))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Connection: close" in answer
    assert b"it was damaged on the way" in answer
    assert answer.count(b"HTTP/1.1") == 1
    assert arrived() == 1


def test_a_piece_in_a_bundle_is_no_longer_than_a_piece_can_be(
    federation: MakeFederation,
) -> None:
    made, pieces, arrived = offered(federation)
    long = bytes(protocol.MAX_PACKED_BYTES + 1)
    answer = refused(made, under_way(made, [pieces[0], long, pieces[1]]))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"bytes in a bundle" in answer
    assert arrived() == 1


def test_numbers_that_cannot_be_compressed_are_no_longer_than_a_piece_can_be() -> None:
    noise = np.random.default_rng(0).bytes(4 * protocol.PIECE_NUMBERS)
    longest = len(protocol.packed(noise, Encoding(compression="zlib")))
    assert 4 * protocol.PIECE_NUMBERS < longest <= protocol.MAX_PACKED_BYTES


@pytest.mark.parametrize(("last", "pieces"), [("0", 0), ("2", 2), ("999999999", PIECES - 1)])
def test_a_bundle_of_the_model_ends_with_the_model(
    federation: MakeFederation, last: str, pieces: int
) -> None:
    made = offered(federation)[0]
    answer = made.ask("GET", f"/v1/rounds/1/model/1-{last}").body
    assert len(split(answer)) == pieces


def test_a_bundle_of_the_model_is_no_longer_than_a_bundle_can_be(
    federation: MakeFederation,
) -> None:
    made = federation(settings=settings(1))
    size = (MAX_PIECES + 1) * protocol.PIECE_NUMBERS
    client = AggregatorClient(made.server.address, name="a", secret=own("a"))
    client.join(layout(size))
    client.send(0, numbers(size), commit=Commit("", 1))
    client.close(will_return=True)
    path = f"/v1/rounds/1/model/0-{MAX_PIECES}"
    with socket.create_connection(made.server.address, PATIENCE_S) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\n{head('a')}\r\n".encode())
        answer = http.client.HTTPResponse(line)
        answer.begin()
        assert sum(1 for _ in bundles.split(answer.readinto)) == MAX_PIECES


def test_a_bundle_that_ends_in_a_piece_is_damaged() -> None:
    whole = joined([b"abcd", b"efghi"])
    assert split(whole) == [b"abcd", b"efghi"]
    for cut in (1, 4, 6, 10):
        with pytest.raises(Damaged, match="it was cut"):
            split(whole[:-cut])


def test_a_bundle_of_another_participant_is_refused(federation: MakeFederation) -> None:
    made = begun(federation(settings=settings(2)), "a", "b")
    path = "/v1/rounds/1/updates/b/0-1"
    request = f"PUT {path} HTTP/1.1\r\n{head('a')}Content-Length: 9\r\n\r\n".encode() + bytes(9)
    answer = refused(made, request)
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert answer.count(b"HTTP/1.1") == 1


# ---- limits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", [PLAIN, Encoding("float16")], ids=["float32", "float16"])
def test_a_bundle_takes_the_memory_of_pieces(
    federation: MakeFederation, encoding: Encoding
) -> None:
    """Of both sides together, with the eight pieces of the model that the aggregator keeps.

    No array of the weights ends where a piece does.
    """
    made = federation(settings=settings(1), encoding=encoding)
    size = MAX_PIECES * protocol.PIECE_NUMBERS
    arrays = [numbers(size - 5), numbers(5)]
    weights = FlatWeights(arrays, layout_of(arrays))
    client = AggregatorClient(made.server.address, name="a", secret=own("a"))
    client.join(layout(size))
    tracemalloc.start()
    try:
        client.send(0, weights, commit=Commit("", 1))
        _, peak_of_upload = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        fetched = client.fetch(1, size)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        client.close()
    assert np.array_equal(fetched, weights[:])
    piece = 4 * protocol.PIECE_NUMBERS
    assert peak_of_upload < 8 * piece
    assert peak - fetched.nbytes < 16 * piece


@pytest.mark.parametrize("most", [0, -3, 2**62])
def test_a_number_of_pieces_that_is_none_is_kept_within_limits(
    aggregator: ScriptedAggregator, client: AggregatorClient, most: int
) -> None:
    aggregator.welcome = Welcome(PLAIN, beat_s=3600.0, max_pieces=most)
    sent = sent_by(aggregator, client)
    assert sent[2] == ("PUT /1" if most < 1 else "PUT /1-2")


@pytest.mark.parametrize("most", [4.5, "4", None])
def test_a_number_of_pieces_of_another_type_ends_the_join(
    aggregator: ScriptedAggregator, client: AggregatorClient, most: Any
) -> None:
    welcome = {**msgspec.to_builtins(aggregator.welcome), "max_pieces": most}
    aggregator.script = lambda asked: (
        (200, msgspec.msgpack.encode(welcome)) if asked.what == JOIN else None
    )
    with pytest.raises(FederationError, match=r"malformed Welcome: .*max_pieces"):
        client.join(layout(SIZE))


def test_an_aggregator_that_sends_pieces_without_end_is_heard_to_the_end_of_the_bundle(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    """Beyond the model, a piece without numbers has the right checksum."""
    parts = [protocol.packed(part, PLAIN) for part in protocol.wire_parts(numbers(), PLAIN)]

    def script(asked: Asked) -> Answer | None:
        if "/model/" not in asked.what:
            return None
        first, _, last = asked.what.rpartition("/")[2].partition("-")
        pieces = [*parts[int(first) :], *[bytes(4)] * 1000]
        return 200, joined(pieces) if last else parts[int(first)]

    aggregator.script = script
    client.join(layout(SIZE))
    assert np.array_equal(client.fetch(1, SIZE), numbers())
    fetched = [a.what.rpartition("/")[2] for a in aggregator.asked if "/model/" in a.what]
    assert fetched == ["0", "1-2", "3-6", "7-9"]


def test_a_round_that_closes_ends_a_bundle_of_its_model_with_a_piece(
    federation: MakeFederation,
) -> None:
    """The reader then asks for the next piece, and hears that the round is over."""
    made = federation(settings=settings(2, min_participants=1, deadline_s=0.1))
    size = MAX_PIECES * protocol.PIECE_NUMBERS
    clients = [AggregatorClient(made.server.address, name=name, secret=own(name)) for name in "ab"]
    for each in clients:
        each.join(layout(size))
    clients[0].send(0, numbers(size), commit=Commit("", 1))
    request = f"GET /v1/rounds/1/model/0-{MAX_PIECES - 1} HTTP/1.1\r\n{head('b')}\r\n"
    with socket.create_connection(made.server.address, PATIENCE_S) as line:
        line.sendall(request.encode())
        answer = http.client.HTTPResponse(line)
        answer.begin()
        pieces = bundles.split(answer.readinto)
        next(pieces)  # the lines between hold some more
        clients[0].send(1, numbers(size), commit=Commit("", 1))
        eventually("round 2", lambda: clients[0].next_round().round == 2)
        assert 1 < 1 + sum(1 for _ in pieces) < MAX_PIECES
    for each in clients:
        each.close()


def test_a_bundle_beyond_the_limit_is_refused_before_it_is_read(
    federation: MakeFederation,
) -> None:
    made = begun(federation(settings=settings(2)), "a")
    request = f"PUT {UPDATE}/0-63 HTTP/1.1\r\n{head('a')}Content-Length: {bundles.MAX_BYTES + 1}"
    answer = refused(made, f"{request}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_pieces_beyond_the_end_of_an_update_are_refused(federation: MakeFederation) -> None:
    made, pieces, arrived = offered(federation)
    answer = refused(made, under_way(made, [*pieces, bytes(4), bytes(4)]))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert f"no piece {PIECES}".encode() in answer
    assert arrived() == PIECES
