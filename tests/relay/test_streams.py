"""A worker's connection reaches its Service through the relay, both ways and to the last byte."""

import asyncio
import os
from pathlib import Path

import pytest

from common.version import VERSION
from tests.globalmanager.edge.world import A, B
from tests.relay.world import HOST, RelayWorld, one_answer
from tests.support.waiting import async_eventually


async def test_bytes_go_both_ways_to_the_end(world: RelayWorld) -> None:
    status, reader, writer = await world.connect()
    assert status == 200
    sent = os.urandom(3_000_000)

    async def send() -> None:
        for start in range(0, len(sent), 100_000):
            writer.write(sent[start : start + 100_000])
            await writer.drain()
        writer.write_eof()

    sending = asyncio.create_task(send())
    received = await reader.read()
    await sending
    assert received == sent
    info = world.cloud.relays.info(A)
    assert info is not None
    assert 3_000_000 < info.sent_bytes < 3_300_000
    assert 3_000_000 < info.received_bytes < 3_300_000
    (session,) = world.cloud.sessions.snapshot()
    assert session.release == VERSION
    assert world.cloud.relays.info(B) is None
    writer.close()


async def test_a_service_that_speaks_first_and_ends(tmp_path: Path) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello")

    async with RelayWorld(tmp_path).running(greet) as world:
        for _ in range(20):
            _, reader, writer = await world.connect()
            assert await reader.read() == b"220 hello"
            writer.close()


async def test_every_name_of_the_service_reaches_it(world: RelayWorld) -> None:
    for host in ("digits-cloud", HOST, f"{HOST}.svc", f"{HOST}.svc.cluster.local", HOST.upper()):
        status, _, writer = await world.connect(host)
        assert status == 200, host
        writer.close()


async def test_a_stream_is_forgotten_when_both_ends_are_done(world: RelayWorld) -> None:
    _, reader, writer = await world.connect()
    assert world.cloud.sample("edgeai_edge_relay_streams") == 1
    info = world.cloud.relays.info(A)
    assert (info and info.streams) == 1
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    await async_eventually(
        "no stream is left", lambda: world.cloud.sample("edgeai_edge_relay_streams") == 0
    )


async def test_a_worker_that_dies_ends_its_connection_to_the_service(world: RelayWorld) -> None:
    _, _, writer = await world.connect()
    assert world.open_targets == 1
    writer.transport.abort()
    await async_eventually("the target is free", lambda: world.open_targets == 0)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (
            f"GET http://{HOST}:%d/healthz HTTP/1.1",
            f"GET /healthz HTTP/1.1\r\nHost: {HOST}:%d\r\nConnection: close",
        ),
        (
            f"GET http://{HOST}:%d?a=b HTTP/1.1",
            f"GET /?a=b HTTP/1.1\r\nHost: {HOST}:%d\r\nConnection: close",
        ),
        (
            f"GET http://{HOST}:%d/x HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Hop\r\n"
            "X-Hop: 1\r\nX-Kept: 2\r\nProxy-Connection: keep-alive",
            f"GET /x HTTP/1.1\r\nHost: {HOST}:%d\r\nX-Kept: 2\r\nConnection: close",
        ),
        (
            f"GET http://{HOST}:%d/ HTTP/1.1\r\nContent-Length: 0\r\nConnection: Content-Length",
            f"GET / HTTP/1.1\r\nHost: {HOST}:%d\r\nContent-Length: 0\r\nConnection: close",
        ),
        (
            f"GET http://{HOST}:%d/ws HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket",
            f"GET /ws HTTP/1.1\r\nHost: {HOST}:%d\r\nUpgrade: websocket\r\nConnection: Upgrade",
        ),
        (
            f"GET http://{HOST}:%d/ HTTP/1.1\r\nHost: kubernetes.default",
            f"GET / HTTP/1.1\r\nHost: {HOST}:%d\r\nConnection: close",
        ),
    ],
    ids=["path", "query", "headers of the hop", "length", "upgrade", "another host"],
)
async def test_a_request_with_an_absolute_url_is_passed_on(
    tmp_path: Path, head: str, expected: str
) -> None:
    async with RelayWorld(tmp_path).running(one_answer) as world:
        reader, writer = await world.ask(head % world.target_port)
        answer = await reader.read()
        writer.close()
    told = expected % world.target_port
    assert answer.partition(b"\r\n\r\n")[2].decode() == f"{told}\r\n\r\n"


async def test_a_large_body_follows_its_head(tmp_path: Path) -> None:
    body = os.urandom(1_000_000)
    async with RelayWorld(tmp_path).running(one_answer) as world:
        at = f"http://{HOST}:{world.target_port}/v1/predict"
        reader, writer = await world.ask(f"POST {at} HTTP/1.1\r\nContent-Length: {len(body)}")
        writer.write(body)
        answer = await reader.read()
        writer.close()
    assert answer.endswith(body)


async def test_the_worker_api_answers_on_the_same_port(world: RelayWorld) -> None:
    reader, writer = await asyncio.open_connection(world.host, world.port)
    writer.write(
        b"POST /w/none/v1/workers/x/status HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
    )
    assert b" 403 " in await reader.readline()
    writer.close()


async def test_a_target_that_does_not_read_costs_its_stream_alone(tmp_path: Path) -> None:
    never = asyncio.Event()

    async def deaf_at_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readexactly(1) == b"d":
            await never.wait()
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async with RelayWorld(tmp_path).running(deaf_at_first) as world:
        _, _, deaf = await world.connect()
        deaf.write(b"d" + bytes(20_000_000))
        _, reader, writer = await world.connect()
        writer.write(b"x")
        for _ in range(20):
            writer.write(bytes(100_000))
            await reader.readexactly(100_000)
        assert deaf.transport.get_write_buffer_size() > 0, "the deaf target took everything"
        never.set()
        deaf.transport.abort()
        writer.close()


async def test_bulk_in_one_stream_leaves_room_for_the_others(world: RelayWorld) -> None:
    """A small request is answered while another stream carries all that the machine can."""
    _, bulk_reader, bulk = await world.connect()
    is_over = asyncio.Event()

    async def flood() -> None:
        while not is_over.is_set():
            bulk.write(bytes(500_000))
            await bulk.drain()

    async def swallow() -> None:
        while not is_over.is_set():
            await bulk_reader.read(500_000)

    tasks = [asyncio.create_task(flood()), asyncio.create_task(swallow())]
    _, reader, writer = await world.connect()
    for _ in range(50):
        writer.write(bytes(4096))
        await reader.readexactly(4096)
    is_over.set()
    bulk.transport.abort()
    for task in tasks:
        task.cancel()
    writer.close()
