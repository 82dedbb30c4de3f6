"""Handshakes: who is let in, who is told to come back, and what is never read."""

import asyncio
import contextlib
import hashlib
import http.client
import logging
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from common import wire
from common.relay import frames as relay_frames
from globalmanager.edge.door.admission import AdmissionLimits
from globalmanager.edge.door.connection import MAX_HEAD_BYTES
from globalmanager.edge.door.server import ARRIVALS, USER_TIMEOUT_S
from tests.globalmanager.edge.world import NODES, A, B, EdgeSide, Peer, dial, token
from tests.support.waiting import async_eventually

UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: gm\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{headers}\r\n"
)
GOOD = f"Authorization: Bearer {token(A)}\r\nSec-WebSocket-Protocol: {wire.SUBPROTOCOL}\r\n"


@contextlib.asynccontextmanager
async def raw(
    world: EdgeSide, source: str = "127.0.0.1"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*world.server.address, local_addr=(source, 0))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def ask(
    world: EdgeSide, headers: str = GOOD, path: str = "/", source: str = "127.0.0.1"
) -> tuple[int, str]:
    """Status and whole answer of a handshake, up to the end of the connection."""
    async with raw(world, source) as (reader, writer):
        writer.write(UPGRADE.format(path=path, headers=headers).encode())
        answer = (await asyncio.wait_for(reader.read(), 5)).decode()
        return int(answer.split()[1]), answer


REFUSED = {
    "another path": ("/other", GOOD, 404),
    "no subprotocol": ("/", f"Authorization: Bearer {token(A)}\r\n", 400),
    "another subprotocol": ("/", GOOD.replace(wire.SUBPROTOCOL, "edgeai.v9"), 400),
    "no credential": ("/", f"Sec-WebSocket-Protocol: {wire.SUBPROTOCOL}\r\n", 401),
    "wrong token": ("/", GOOD.replace(token(A), "guess"), 401),
    "basic instead of bearer": ("/", GOOD.replace("Bearer", "Basic"), 401),
    "token of another node": ("/", GOOD + "Edgeai-Node: node-1\r\n", 401),
    "two credentials": ("/", GOOD + f"Authorization: Bearer {token(B)}\r\n", 400),
    "two names": ("/", GOOD + f"Edgeai-Node: {A}\r\nEdgeai-Node: {B}\r\n", 400),
}


@pytest.mark.parametrize(("path", "headers", "status"), REFUSED.values(), ids=REFUSED.keys())
async def test_a_bad_handshake_is_refused(
    world: EdgeSide, path: str, headers: str, status: int
) -> None:
    assert (await ask(world, headers, path))[0] == status
    assert not world.contacts.by_node()
    assert world.sample("edgeai_edge_handshakes_total", outcome=str(status)) == 1


@pytest.mark.parametrize("header", ["Authorization", "Edgeai-Node"])
async def test_a_header_that_comes_twice_is_named_and_makes_no_fault(
    world: EdgeSide, header: str, caplog: pytest.LogCaptureFixture
) -> None:
    _, answer = await ask(world, GOOD + f"{header}: x\r\n{header}: y\r\n")
    assert f"header {header} came more than once" in answer
    assert "Traceback" not in caplog.text


async def test_a_node_may_say_its_own_name(world: EdgeSide) -> None:
    async with raw(world) as (reader, writer):
        writer.write(UPGRADE.format(path="/", headers=GOOD + f"Edgeai-Node: {A}\r\n").encode())
        assert b"101 Switching" in await asyncio.wait_for(reader.readline(), 5)


async def test_a_refusal_does_not_say_whether_the_node_or_the_token_is_wrong(
    world: EdgeSide,
) -> None:
    unknown = await ask(world, GOOD.replace(token(A), "guess"))
    mismatch = await ask(world, GOOD + "Edgeai-Node: node-1\r\n")
    assert without_date(unknown[1]) == without_date(mismatch[1])


async def test_a_refused_credential_is_in_no_log(
    world: EdgeSide, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "globalmanager")
    await ask(world, GOOD.replace(token(A), "s3cr3t-guess"))
    await ask(world, GOOD + "Edgeai-Node: node-1\r\n")
    logged = capsys.readouterr().out + caplog.text
    assert "peer not authenticated" in logged
    assert "s3cr3t-guess" not in logged
    assert token(A) not in logged


def without_date(answer: str) -> list[str]:
    return [line for line in answer.splitlines() if not line.startswith("Date:")]


async def test_after_a_401_the_socket_closes_within_a_second(world: EdgeSide) -> None:
    """Though the peer keeps its side open and goes on to talk."""
    loop = asyncio.get_running_loop()
    async with raw(world) as (reader, writer):
        writer.write(UPGRADE.format(path="/", headers=GOOD.replace(token(A), "x")).encode())
        await asyncio.wait_for(reader.readuntil(b"unauthorized\n"), 5)
        answered_at = loop.time()
        await async_eventually("an empty lobby", lambda: len(world.server.lobby) == 0)
        assert loop.time() - answered_at < 1
        assert world.sample("edgeai_edge_messages_total", direction="in") == 0


async def test_what_follows_a_request_too_early_is_not_read(world: EdgeSide) -> None:
    """A frame in the same segment as the request: the connection ends without an answer."""
    hello = wire.encode(wire.Hello([1], "i", {}))[0]
    frame = bytes([0x82, 0x80 | len(hello), 0, 0, 0, 0]) + hello
    for headers in (GOOD, GOOD.replace(token(A), "guess")):
        async with raw(world) as (reader, writer):
            writer.write(UPGRADE.format(path="/", headers=headers).encode() + frame)
            assert await read_to_end(reader) == b""
    assert world.sample("edgeai_edge_messages_total", direction="in") == 0
    assert not world.contacts.by_node()


async def test_a_request_without_end_is_cut(world: EdgeSide) -> None:
    async with raw(world) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * (MAX_HEAD_BYTES // 6))
        assert await read_to_end(reader) == b""


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionResetError:
        return b""


async def test_health_is_answered_on_the_same_port(world: EdgeSide) -> None:
    world.is_ready = False
    host, port = world.server.address

    def get() -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(host, port, timeout=5)
        connection.request("GET", "/healthz")
        response = connection.getresponse()
        answer = response.status, response.read()
        connection.close()
        return answer

    assert await asyncio.to_thread(get) == (200, b"ok\n")


async def test_before_the_desired_sets_are_known_nodes_are_told_to_come_back(
    world: EdgeSide,
) -> None:
    world.is_ready = False
    with pytest.raises(InvalidStatus) as refused:
        async with dial(world.url, token(A)):
            pass
    assert refused.value.response.status_code == 503
    assert int(refused.value.response.headers["Retry-After"]) >= 1
    world.is_ready = True
    async with world.peer() as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)


async def test_a_relay_is_admitted_while_only_sessions_need_the_newest_tasks(
    world: EdgeSide,
) -> None:
    world.is_ready = False
    request = GOOD.replace(wire.SUBPROTOCOL, relay_frames.SUBPROTOCOL)
    async with raw(world) as (reader, writer):
        writer.write(UPGRADE.format(path="/", headers=request).encode())
        assert b"101 Switching" in await asyncio.wait_for(reader.readline(), 5)
    both = GOOD.replace(wire.SUBPROTOCOL, f"{relay_frames.SUBPROTOCOL}, {wire.SUBPROTOCOL}")
    assert (await ask(world, both))[0] == 503
    world.may_relay = False
    assert (await ask(world, request))[0] == 503


async def test_admissions_are_bounded(tmp_path: Path) -> None:
    limits = AdmissionLimits(per_s=0.001, burst=2)
    async with EdgeSide(tmp_path / "tokens", limits=limits).running() as world:
        statuses = [(await ask(world, GOOD.replace(token(A), "guess")))[0] for _ in range(4)]
        assert statuses == [401, 401, 503, 503]
        assert world.sample("edgeai_edge_handshakes_total", outcome="503") == 2


async def synced(peer: Peer) -> None:
    await async_eventually("a synced peer", lambda: peer.is_synced)


async def test_nodes_are_admitted_beyond_the_rates_of_strangers(tmp_path: Path) -> None:
    """All from one address, as behind a NAT."""
    limits = AdmissionLimits(per_s=0.001, burst=1, per_address_per_s=0.001, per_address_burst=1)
    async with EdgeSide(tmp_path / "tokens", limits=limits).running() as world:
        async with contextlib.AsyncExitStack() as stack:
            for node in NODES:
                peer = await stack.enter_async_context(world.peer(node))
                await synced(peer)
        assert world.sample("edgeai_edge_handshakes_total", outcome="503") == 0


async def test_a_node_that_comes_again_and_again_pays_like_a_stranger(tmp_path: Path) -> None:
    limits = AdmissionLimits(per_s=0.001, burst=2)
    async with EdgeSide(tmp_path / "tokens", limits=limits).running() as world:
        for _ in range(3):  # the first is free
            async with world.peer(A) as peer:
                await synced(peer)
        with pytest.raises(InvalidStatus) as refused:
            async with dial(world.url, token(A)):
                pass
        assert refused.value.response.status_code == 503
        assert int(refused.value.response.headers["Retry-After"]) >= 1


async def test_one_address_takes_a_part_of_the_admissions(tmp_path: Path) -> None:
    limits = AdmissionLimits(per_s=0.001, burst=4, per_address_per_s=0.001, per_address_burst=2)
    guess = GOOD.replace(token(A), "guess")
    async with EdgeSide(tmp_path / "tokens", limits=limits).running() as world:
        statuses = [(await ask(world, guess, source="127.0.0.66"))[0] for _ in range(4)]
        assert statuses == [401, 401, 503, 503]
        statuses = [(await ask(world, guess, source="127.0.0.51"))[0] for _ in range(2)]
        assert statuses == [401, 401]


async def test_what_strangers_do_is_one_line_of_the_log_and_counted_all_the_same(
    world: EdgeSide, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "globalmanager")
    for _ in range(5):
        await ask(world, GOOD.replace(token(A), "guess"))
    logged = capsys.readouterr().out + caplog.text
    assert logged.count("peer not authenticated") == 1
    assert world.sample("edgeai_edge_handshakes_total", outcome="401") == 5


async def test_connections_that_say_nothing_are_bounded_and_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = AdmissionLimits(unauthenticated_per_address=3, open_s=0.3)
    async with EdgeSide(tmp_path / "tokens", limits=limits).running() as world:
        async with contextlib.AsyncExitStack() as stack:
            idle = [await stack.enter_async_context(raw(world)) for _ in range(3)]
            await async_eventually(
                "len(world.server.lobby) == 3", lambda: len(world.server.lobby) == 3
            )
            async with raw(world) as (reader, _):
                assert await read_to_end(reader) == b"", "no room in the lobby"
            assert world.sample("edgeai_edge_handshakes_total", outcome="no room") == 1
            assert "too many peers are not authenticated yet" in capsys.readouterr().out
            async with world.peer(local_addr=("127.0.0.2", 0)) as other:
                await async_eventually("a synced peer of another address", lambda: other.is_synced)
            for reader, _ in idle:
                assert await read_to_end(reader) == b"", "the deadline for the handshake"
        async with world.peer() as peer:
            await async_eventually("a synced peer", lambda: peer.is_synced)
        assert len(world.server.lobby) == 0


async def test_connections_beyond_the_rate_of_an_address_are_not_read(tmp_path: Path) -> None:
    limits = AdmissionLimits(per_address_per_s=0.001, per_address_burst=2)
    async with EdgeSide(tmp_path / "tokens", limits=limits).running() as world:
        for _ in range(2 * ARRIVALS):
            status, _ = await ask(world, path="/healthz")
            assert status == 200
        for _ in range(5):
            async with raw(world) as (reader, writer):
                writer.write(UPGRADE.format(path="/healthz", headers=GOOD).encode())
                assert await read_to_end(reader) == b""
        assert world.sample("edgeai_edge_handshakes_total", outcome="no room") == 5
        async with world.peer(local_addr=("127.0.0.2", 0)) as other:
            await async_eventually("a synced peer of another address", lambda: other.is_synced)


async def test_sessions_leave_the_lobby(tmp_path: Path) -> None:
    limits = AdmissionLimits(unauthenticated_per_address=1)
    async with (
        EdgeSide(tmp_path / "tokens", limits=limits).running() as world,
        world.peer(A) as peer,
    ):
        await async_eventually("a synced peer", lambda: peer.is_synced)
        async with world.peer(B) as other:
            await async_eventually("the other peer synced", lambda: other.is_synced)


async def test_a_session_keeps_no_header_of_its_handshake(world: EdgeSide) -> None:
    async with world.peer() as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        (connection,) = world.server._connections
        assert connection.request is not None
        assert not list(connection.request.headers.raw_items())


async def test_accepted_sockets_give_up_on_a_peer_that_acknowledges_nothing(
    world: EdgeSide,
) -> None:
    async with world.socket():
        (connection,) = world.server._connections
        accepted = connection.transport.get_extra_info("socket")
        option = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert option == USER_TIMEOUT_S * 1000


async def test_stopping_does_not_wait_for_those_who_say_nothing(world: EdgeSide) -> None:
    async with raw(world) as (reader, _):
        await async_eventually("len(world.server.lobby) == 1", lambda: len(world.server.lobby) == 1)
        await asyncio.wait_for(world.server.stop(), 2)
        assert await read_to_end(reader) == b""


async def test_a_session_whose_token_is_another_nodes_now_is_closed(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    async with EdgeSide(tokens, review_s=0.05).running() as world, world.peer(A) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        new = tokens.with_suffix(".new")
        new.write_text(f"{B} {hashlib.sha256(token(A).encode()).hexdigest()}\n")
        os.replace(new, tokens)
        await async_eventually("a revoked session", lambda: peer.close_code == wire.Close.REVOKED)
