"""Connections and requests to the REST API beyond its limits, over real sockets."""

import asyncio
import contextlib
import math
import socket
from collections.abc import AsyncIterator

import pytest

from globalmanager.rest.server import RestLimits
from tests.globalmanager.rest.cluster import JI, RestSide, object_of
from tests.support.waiting import PATIENCE_S, async_eventually

LIMIT = 8
SLOW = f"GET /api/v1/{JI} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
HOLDERS = {
    "silent, of the same address": ("127.0.0.1", b""),
    "silent, of another address": ("127.0.0.2", b""),
    "with half a head": ("127.0.0.2", b"GET /healthz HTTP/1.1\r\n"),
    "that do not read a long answer, of another address": ("127.0.0.2", SLOW),
}


@pytest.fixture
async def world() -> AsyncIterator[RestSide]:
    async with RestSide(limits=RestLimits(connections=LIMIT)).running() as world:
        text = "<" * 1_300_000
        world.cluster.objects = [{**object_of(f"o{n}"), "spec": {"x": text}} for n in range(4)]
        yield world


@pytest.mark.parametrize(("source", "sent"), HOLDERS.values(), ids=HOLDERS.keys())
async def test_connections_are_bounded_and_keep_nobody_out(
    world: RestSide, source: str, sent: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.ExitStack() as held:
        for _ in range(3 * LIMIT):
            # The kernel accepts the connection, and nobody reads from it.
            connection = socket.create_connection(world.server.address, source_address=(source, 0))
            held.enter_context(connection).sendall(sent)
        await async_eventually("connections that were cut", lambda: cut(world) == 2 * LIMIT)
        for _ in range(3):
            async with asyncio.timeout(PATIENCE_S):
                assert (await world.get("/healthz"))[0] == 200
        assert world.registry.get_sample_value("edgeai_rest_connections") <= LIMIT  # type: ignore[operator]
    assert "too many connections" in capsys.readouterr().out


def cut(world: RestSide) -> float:
    return world.registry.get_sample_value("edgeai_rest_connections_cut_total") or 0.0


async def test_a_connection_that_ended_leaves_room(world: RestSide) -> None:
    for _ in range(3 * LIMIT):
        _, writer = await asyncio.open_connection(*world.server.address)
        writer.close()
        await writer.wait_closed()
        await async_eventually(
            "no connection",
            lambda: world.registry.get_sample_value("edgeai_rest_connections") == 0,
        )
    assert cut(world) == 0


async def test_a_flood_of_requests_waits_and_another_address_is_answered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    limits = RestLimits(per_address_per_s=0.01, per_address_burst=5, max_wait_s=math.inf)
    async with RestSide(limits=limits).running() as world:
        with contextlib.ExitStack() as held:
            flood = [
                held.enter_context(
                    socket.create_connection(world.server.address, source_address=("127.0.0.2", 0))
                )
                for _ in range(4)
            ]
            for connection in flood:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
            await async_eventually(
                "a request that waits on each connection", lambda: waiting(world) == 4
            )
            async with asyncio.timeout(PATIENCE_S):
                assert (await world.get("/healthz"))[0] == 200
            answers = b"".join(answer_so_far(each) for each in flood)
            assert answers.count(b" 200 OK") == 5
    assert "too many requests from one source" in capsys.readouterr().out


async def test_clients_that_leave_and_come_again_leave_few_requests_behind() -> None:
    limits = RestLimits(
        connections=LIMIT,
        per_address_per_s=0.01,
        per_address_burst=5,
        arrivals=2 * LIMIT,
        max_wait_s=math.inf,
    )
    async with RestSide(limits=limits).running() as world:
        before = len(asyncio.all_tasks())
        for _ in range(6 * LIMIT):
            await leave_a_request(world)
        assert waiting(world) == LIMIT
        assert len(asyncio.all_tasks()) - before <= 3 * LIMIT
        async with asyncio.timeout(PATIENCE_S):
            assert (await world.get("/healthz"))[0] == 200


async def leave_a_request(world: RestSide) -> None:
    _, writer = await asyncio.open_connection(*world.server.address, local_addr=("127.0.0.2", 0))
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    connections = "edgeai_rest_connections"
    await async_eventually(
        "no connection", lambda: world.registry.get_sample_value(connections) == 0
    )


async def test_a_request_that_would_wait_too_long_ends_its_connection() -> None:
    limits = RestLimits(per_address_per_s=0.01, per_address_burst=5, max_wait_s=1.0)
    async with RestSide(limits=limits).running() as world:
        reader, writer = await asyncio.open_connection(*world.server.address)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 6)
        with contextlib.suppress(ConnectionResetError):
            async with asyncio.timeout(PATIENCE_S):
                assert (await reader.read()).count(b" 200 OK") == 5
        writer.close()


async def test_the_first_200_requests_of_a_flood_are_answered_and_then_100_a_second() -> None:
    async with RestSide().running() as world:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with contextlib.ExitStack() as held:
            flood = [
                held.enter_context(socket.create_connection(world.server.address)) for _ in range(4)
            ]
            for connection in flood:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
            await async_eventually("requests that wait", lambda: waiting(world) >= 4)
            answers = b"".join(answer_so_far(each) for each in flood)
            allowed = 200 + 100 * (loop.time() - began)
            assert 200 <= answers.count(b" 200 OK") <= allowed


async def test_connections_that_are_opened_without_pause_are_cut_and_another_address_is_not() -> (
    None
):
    limits = RestLimits(per_address_per_s=0.01, per_address_burst=4)
    async with RestSide(limits=limits).running() as world:
        for _ in range(20):
            with socket.create_connection(world.server.address, source_address=("127.0.0.2", 0)):
                pass
        await async_eventually("connections that were cut", lambda: cut(world) == 12)
        assert (await world.get("/healthz"))[0] == 200


async def test_malformed_requests_do_not_fill_the_log(
    world: RestSide, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        reader, writer = await asyncio.open_connection(*world.server.address)
        writer.write(b"GET /s3cret HTTP/1.1\r\nBad Header\r\n\r\n")
        assert b" 400 " in await asyncio.wait_for(reader.readline(), PATIENCE_S)
        writer.close()
        await writer.wait_closed()
    logged = capsys.readouterr().out + caplog.text
    assert logged.count("malformed request") == 1
    assert "Traceback" not in logged
    assert "s3cret" not in logged


def waiting(world: RestSide) -> float:
    return world.registry.get_sample_value("edgeai_rest_requests_delayed_total") or 0.0


def answer_so_far(connection: socket.socket) -> bytes:
    connection.setblocking(False)
    answer = bytearray()
    with contextlib.suppress(BlockingIOError):
        while received := connection.recv(64 * 1024):
            answer += received
    return bytes(answer)
