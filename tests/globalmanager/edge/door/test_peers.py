"""Peers that break the protocol, fall silent or do not read: each ends alone, with its code."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from common import wire
from common.session import Timing
from edgeai.ids import WorkerName
from tests.globalmanager.edge.world import A, B, EdgeSide, key, report_body, token, uid
from tests.support.waiting import async_eventually

HASTY = Timing(opening_s=0.3, beat_s=0.1, silence_s=0.6)
HELLO = wire.encode(wire.Hello(list(wire.VERSIONS), "i", {}))[0]
REPORT = wire.encode(wire.Report(1, uid(), WorkerName("w"), 1, report_body()))[0]


def hello(**changes: object) -> bytes:
    return msgspec.msgpack.encode(
        {"frame": "hello", "versions": [1], "instance": "i", "held": {}} | changes
    )


BROKEN: dict[str, tuple[list[bytes | str], int]] = {
    "truncated": ([HELLO[:-3]], wire.Close.PROTOCOL),
    "empty": ([b""], wire.Close.PROTOCOL),
    "no msgpack": ([b"\xc1"], wire.Close.PROTOCOL),
    "bytes behind the frame": ([HELLO + b"\x00"], wire.Close.PROTOCOL),
    "text": (["hello"], wire.Close.PROTOCOL),
    "frame of an unknown type": ([hello(frame="greetings")], wire.Close.PROTOCOL),
    "field of a wrong type": ([hello(instance=7)], wire.Close.PROTOCOL),
    "field missing": ([msgspec.msgpack.encode({"frame": "hello"})], wire.Close.PROTOCOL),
    "no common version": ([hello(versions=[99])], wire.Close.PROTOCOL),
    "deep nesting": ([b"\x91" * 100_000], wire.Close.PROTOCOL),
    "report before hello": ([REPORT], wire.Close.PROTOCOL),
    "two hellos": ([HELLO, HELLO], wire.Close.PROTOCOL),
    "frame of the other side": (
        [HELLO, wire.encode(wire.Welcome(1, 1, "s"))[0]],
        wire.Close.PROTOCOL,
    ),
    "sequence number zero": (
        [HELLO, msgspec.msgpack.encode({"frame": "ack", "seq": 0})],
        wire.Close.PROTOCOL,
    ),
    "too big": ([HELLO, b"\x00" * (wire.MAX_FRAME_BYTES + 1)], wire.Close.TOO_BIG),
    "empty chunk": ([wire.encode(wire.Chunk(b"", False))[0]], wire.Close.TOO_BIG),
    "frame between chunks": (
        [wire.encode(wire.Chunk(HELLO[:9], False))[0], HELLO],
        wire.Close.PROTOCOL,
    ),
}


@pytest.mark.parametrize(("messages", "code"), BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_peer_is_closed_with_its_code_and_alone(
    world: EdgeSide, messages: list[bytes | str], code: int
) -> None:
    world.assign(0, B)
    async with world.peer(B) as good, world.socket(A) as bad:
        for message in messages:
            await bad.send(message)
        await asyncio.wait_for(read_to_end(bad), 5)
        assert bad.close_code == code
        world.assign(1, B)
        await async_eventually("key(1) in good.held", lambda: key(1) in good.held)
        assert good.close_code is None


async def read_to_end(websocket: ClientConnection) -> None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            await websocket.recv()


async def test_a_close_reason_says_what_is_wrong(world: EdgeSide) -> None:
    async with world.socket() as bad:
        await bad.send(hello(versions=[99]))
        await asyncio.wait_for(bad.wait_closed(), 5)
        assert "LocalController [99], GlobalManager [1]" in (bad.close_reason or "")


@pytest.fixture
async def hasty(tmp_path: Path) -> AsyncIterator[EdgeSide]:
    async with EdgeSide(tmp_path / "tokens", timing=HASTY, send_s=0.3).running() as world:
        yield world


async def test_a_peer_without_hello_is_cut(hasty: EdgeSide) -> None:
    async with hasty.socket() as mute:
        await asyncio.wait_for(mute.wait_closed(), 5)
        assert mute.close_code == wire.Close.TIMEOUT
    assert not hasty.contacts.by_node()


async def test_a_silent_peer_is_cut_and_a_beating_one_is_not(hasty: EdgeSide) -> None:
    async with hasty.peer(A) as silent, hasty.peer(B, timing=HASTY) as beating:
        await async_eventually("both peers synced", lambda: silent.is_synced and beating.is_synced)

        async def beat() -> None:
            while silent.close_code is None:
                beating.session.tick(asyncio.get_running_loop().time())
                await beating.flush()
                await asyncio.sleep(0.03)

        await asyncio.wait_for(beat(), 5)
        assert silent.close_code == wire.Close.TIMEOUT
        assert beating.close_code is None
        contacts = hasty.contacts.by_node()
        assert (contacts[A].connected, contacts[B].connected) == (False, True)


async def test_an_idle_session_beats(hasty: EdgeSide) -> None:
    async with hasty.socket() as websocket:
        await websocket.send(HELLO)
        frames = [wire.decode(as_bytes(await websocket.recv())) for _ in range(3)]
        assert [type(frame) for frame in frames] == [wire.Welcome, wire.Synced, wire.Beat]


def as_bytes(message: str | bytes) -> bytes:
    assert isinstance(message, bytes)
    return message


async def test_a_peer_that_stops_reading_is_aborted_and_others_go_on(hasty: EdgeSide) -> None:
    async with hasty.peer(B) as good, hasty.socket(A, max_queue=1) as stuck:
        await stuck.send(HELLO)
        await async_eventually("a contact", lambda: hasty.contacts.by_node().get(A))
        beats = asyncio.create_task(keep_sending(stuck, wire.encode(wire.Beat())[0]))
        for n in range(60):
            hasty.assign(n, A, spec={"filler": "x" * 250_000})
        hasty.assign(99, B)
        await async_eventually("key(99) in good.held", lambda: key(99) in good.held)
        await async_eventually(
            "no contact any more",
            lambda: not hasty.contacts.by_node()[A].connected,
        )
        await asyncio.gather(beats, return_exceptions=True)
        assert hasty.sample("edgeai_edge_sessions_ended_total", code="4008") == 1


async def keep_sending(websocket: ClientConnection, message: bytes) -> None:
    """Until the connection is lost."""
    while True:
        await websocket.send(message)
        await asyncio.sleep(0.05)


async def test_an_abandoned_connection_ends_its_session(world: EdgeSide) -> None:
    async with world.socket() as websocket:
        await websocket.send(HELLO)
        await async_eventually("a contact", lambda: world.contacts.by_node().get(A))
        websocket.transport.abort()
        await async_eventually(
            "no contact any more",
            lambda: not world.contacts.by_node()[A].connected,
        )


async def test_stopping_the_server_tells_every_peer(world: EdgeSide) -> None:
    async with world.peer(A) as a, world.peer(B) as b:
        await async_eventually("both peers synced", lambda: a.is_synced and b.is_synced)
        await world.server.stop()
        await async_eventually(
            "a.close_code and b.close_code", lambda: a.close_code and b.close_code
        )
        assert (a.close_code, b.close_code) == (wire.Close.GOING_AWAY, wire.Close.GOING_AWAY)


async def test_a_desired_set_in_chunks_arrives_whole(world: EdgeSide) -> None:
    filler = "y" * (3 * wire.MAX_FRAME_BYTES)
    world.assign(0, A, spec={"filler": filler})
    async with world.peer() as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        assert wire.unpack(peer.bodies[key(0)], wire.AssignmentBody).spec == {"filler": filler}


async def test_a_peer_that_floods_pings_and_does_not_read_is_cut(world: EdgeSide) -> None:
    """The library answers each ping at once, outside of any send that could have a deadline."""
    ping = bytes([0x89, 0x80 | 125]) + bytes(4) + bytes(125)
    with deaf_socket() as client:
        await upgrade(client, world)
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(flood(client, ping * 500), 20)


async def test_a_peer_that_asks_and_does_not_read_is_no_longer_listened_to(tmp_path: Path) -> None:
    """Reports that are refused at once are answered; answers that wait are bounded too."""
    foreign = wire.encode(wire.Report(1, uid(), WorkerName("w" * 253), 1, report_body()))[0]
    async with EdgeSide(tmp_path / "tokens", send_s=1.5, frames_per_s=1e6).running() as world:
        with deaf_socket() as client:
            await upgrade(client, world)
            await asyncio.get_running_loop().sock_sendall(client, masked(HELLO))
            await async_eventually("a contact", lambda: world.contacts.by_node().get(A))
            asking = asyncio.create_task(flood(client, masked(foreign) * 100), name="asking")
            await async_eventually(
                "Unchanged(world, 'edgeai_edge_messages_total', direction='in')",
                Unchanged(world, "edgeai_edge_messages_total", direction="in"),
            )
            assert world.contacts.by_node()[A].connected
            await asyncio.gather(asking, return_exceptions=True)
            await async_eventually(
                "no contact any more",
                lambda: not world.contacts.by_node()[A].connected,
            )
        assert world.sample("edgeai_edge_sessions_ended_total", code="4008") == 1


class Unchanged:
    """Whether a metric that has grown stays as it is for a while."""

    def __init__(self, world: EdgeSide, name: str, **labels: str) -> None:
        self._world, self._name, self._labels = world, name, labels
        self._clock = asyncio.get_running_loop().time
        self._last = 0.0
        self._since = self._clock()

    def __call__(self) -> bool:
        value = self._world.sample(self._name, **self._labels)
        if value != self._last:
            self._last, self._since = value, self._clock()
        return value > 100 and self._clock() > self._since + 0.3


def deaf_socket() -> socket.socket:
    """A client with little room for what it will not read."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    return client


async def flood(client: socket.socket, data: bytes) -> None:
    """Send for ever. Raises: ConnectionError once the other side has had enough"""
    while True:
        await asyncio.get_running_loop().sock_sendall(client, data)


async def upgrade(client: socket.socket, world: EdgeSide) -> None:
    """The opening handshake by hand, so that nothing reads what comes after it."""
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, world.server.address)
    head = (
        "GET / HTTP/1.1\r\nHost: gm\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Protocol: {wire.SUBPROTOCOL}\r\nAuthorization: Bearer {token(A)}\r\n\r\n"
    )
    await loop.sock_sendall(client, head.encode())
    assert b" 101 " in await loop.sock_recv(client, 1024)


def masked(payload: bytes) -> bytes:
    """A binary frame with the mask 0, as of a client."""
    size = len(payload)
    length = bytes([0x80 | size]) if size < 126 else bytes([0x80 | 126]) + size.to_bytes(2, "big")
    return b"\x82" + length + bytes(4) + payload
