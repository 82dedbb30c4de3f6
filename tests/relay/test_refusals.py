"""What the proxy refuses, with which status and which words."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from common.relay import frames
from common.relay.frames import Refusal, Target
from edgeai.ids import NodeName, TaskKey, Uid, WorkerName
from globalmanager.contract import ServicePort
from globalmanager.edge.sessions.relay import RelayLimits
from tests.globalmanager.edge.world import A, B, dial, token
from tests.relay.world import (
    HOST,
    KEY,
    SECRET,
    SERVICE,
    UID,
    WORKER,
    RelayWorld,
    authorization,
    message_of,
    status_of,
)
from tests.support.waiting import async_eventually

CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    "who",
    [{"secret": "6" * 64}, {"worker": "another"}, {"worker": "", "secret": ""}],
    ids=["wrong secret", "worker of another task", "nobody"],
)
async def test_a_stranger_is_asked_for_a_secret(world: RelayWorld, who: dict[str, Any]) -> None:
    status, reader, writer = await world.connect(**who)
    assert (status, await message_of(reader)) == (
        407,
        "the proxy accepts only workers of this node, with their secret",
    )
    assert world.accepted == 0
    writer.close()


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("other-cloud.default", None),
        ("digits-cloud.kube-system", None),
        ("kubernetes.default", 443),
        ("127.0.0.1", None),
        ("169.254.169.254", 80),
        ("localhost", None),
        ("digits-cloud.default.svc.elsewhere.org", None),
        (HOST, 1),
    ],
)
async def test_only_the_services_of_the_assignment_are_reached(
    world: RelayWorld, host: str, port: int | None
) -> None:
    status, reader, writer = await world.connect(host, port)
    assert status == 403
    at = f"{host}:{port or world.target_port}"
    assert await message_of(reader) == f"no assignment of worker digits-edge names {at}"
    assert world.accepted == 0
    writer.close()


async def test_a_service_that_is_no_child_of_the_job_is_not_dialled(world: RelayWorld) -> None:
    world.cloud.services.clear()
    status, reader, writer = await world.connect()
    assert (status, await message_of(reader)) == (
        502,
        "Service digits-cloud of namespace default has no cluster IP",
    )
    assert world.accepted == 0
    writer.close()


async def test_a_worker_of_one_job_does_not_reach_the_service_of_another(world: RelayWorld) -> None:
    other, secret = TaskKey("jointinferenceservices.edgeai.io/other/mine"), "7" * 64
    world.assign(other, Uid("uid-other"), worker=WorkerName("mine-edge"), secret=secret, targets=())
    await world.assigned()
    status, _, writer = await world.connect(worker="mine-edge", secret=secret)
    assert (status, world.accepted) == (403, 0)
    writer.close()


@pytest.mark.parametrize(
    ("node", "uid", "worker"),
    [(A, UID, "another"), (A, "uid-another", WORKER), (B, UID, WORKER)],
    ids=["worker", "task", "node"],
)
async def test_the_cloud_believes_no_node(
    world: RelayWorld, node: NodeName, uid: str, worker: str
) -> None:
    """A LocalController asks for its workers alone. A stranger in its place may ask for any."""
    target = Target(HOST, world.target_port)
    async with dial(world.cloud.url, token(node), subprotocol=frames.SUBPROTOCOL) as relay:
        await relay.send(frames.encode(frames.Open(1, Uid(uid), WorkerName(worker), target)))
        answer = frames.decode(await relay.recv(decode=False))
    assert isinstance(answer, frames.Reset)
    assert answer.refusal is Refusal.FORBIDDEN
    assert world.accepted == 0


async def test_a_service_that_nobody_serves(world: RelayWorld) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    world.assign(targets=(ServicePort(SERVICE, port),))
    status, reader, writer = await world.connect(port=port)
    assert status == 502
    assert "refused" in (await message_of(reader)).lower()
    writer.close()


async def test_a_service_that_takes_no_connection_in_time(tmp_path: Path) -> None:
    limits = RelayLimits(dial_s=0.1)
    async with RelayWorld(tmp_path, relay_limits=limits).running() as world:
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            port = full.getsockname()[1]
            others = [socket.socket() for _ in range(4)]  # the queue of connections is full
            for each in others:
                each.setblocking(False)
                each.connect_ex(("127.0.0.1", port))
            world.assign(targets=(ServicePort(SERVICE, port),))
            status, reader, writer = await world.connect(port=port)
            assert status == 504
            assert "takes no connection in time" in await message_of(reader)
            writer.close()
            for each in others:
                each.close()


@pytest.mark.parametrize(
    ("head", "status", "words"),
    [
        ("CONNECT digits HTTP/1.1", 400, "HOST:PORT"),
        ("CONNECT digits:0 HTTP/1.1", 400, "HOST:PORT"),
        ("CONNECT digits:99999 HTTP/1.1", 400, "HOST:PORT"),
        ("CONNECT [::1]:80 HTTP/1.1", 400, "HOST:PORT"),
        ("CONNECT a@b:80 HTTP/1.1", 400, "HOST:PORT"),
        ("CONNECT digits:80 HTTP/3", 400, "HTTP/1.1"),
        ("CONNECT digits:80", 400, "request line"),
        ("GET http://digits/ HTTP/2.0", 400, "HTTP/1.1"),
        ("GET http://digits/ HTTP/1.1\nX: a", 400, "CR LF"),
        ("GET http://digits/ HTTP/1.1\n\nGET http://digits/", 400, "CR LF"),
        ("GET http:///x HTTP/1.1", 400, "HOST:PORT"),
        ("GET http://u:p@digits/ HTTP/1.1", 400, "http://HOST"),
        ("GET http://digits:x/ HTTP/1.1", 400, "malformed"),
        ("GET http://digits/ HTTP/1.1\r\nno colon", 400, "header"),
        ("GET http://digits/ HTTP/1.1\r\nHost: a\r\nHOST: b", 400, "multiple Host"),
        ("GET http://digits/ HTTP/1.1\r\n folded: 1", 400, "header"),
        ("GET http://digits/ HTTP/1.1\r\nProxy-Authorization: Basic eDp5", 400, "more than once"),
        (
            "POST http://digits/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2",
            400,
            "conflicting",
        ),
        ("POST http://digits/ HTTP/1.1\r\nContent-Length: 1, 2", 400, "Content-Length"),
        ("POST http://digits/ HTTP/1.1\r\nContent-Length: -1", 400, "Content-Length"),
        (f"POST http://digits/ HTTP/1.1\r\n{CHUNKED}\r\nContent-Length: 1", 400, "alone"),
        (f"POST http://digits/ HTTP/1.1\r\n{CHUNKED}\r\n{CHUNKED}", 400, "Transfer-Encoding"),
        ("POST http://digits/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked", 400, "chunked"),
        (f"POST http://digits/ HTTP/1.0\r\n{CHUNKED}", 400, "HTTP/1.1"),
        ("GET http://digits/ HTTP/1.1\r\nX: " + "x" * 20_000, 431, "16384 bytes"),
    ],
)
async def test_a_malformed_head_is_refused(
    world: RelayWorld, head: str, status: int, words: str
) -> None:
    reader, writer = await world.ask(head)
    assert await status_of(reader) == status
    message = await message_of(reader)
    assert words in message
    assert SECRET not in message
    writer.close()


async def test_a_request_without_host_is_refused(world: RelayWorld) -> None:
    reader, writer = await asyncio.open_connection(world.host, world.port)
    writer.write(f"CONNECT digits:80 HTTP/1.1\r\n{authorization(WORKER, SECRET)}\r\n\r\n".encode())
    assert await status_of(reader) == 400
    assert "Host" in await message_of(reader)
    writer.close()


async def test_more_streams_than_a_worker_may_have(tmp_path: Path) -> None:
    limits = RelayLimits(streams_per_namespace=2)
    async with RelayWorld(tmp_path, relay_limits=limits).running() as world:
        held = [await world.connect() for _ in range(2)]
        status, reader, writer = await world.connect()
        assert (status, await message_of(reader)) == (503, "too many streams of namespace default")
        held[0][2].transport.abort()
        writer.close()

        async def works_again() -> bool:
            status, _, again = await world.connect()
            again.close()
            return status == 200

        await async_eventually("there is room again", works_again)
        held[1][2].transport.abort()


async def test_the_streams_end_with_the_task(world: RelayWorld) -> None:
    _, reader, writer = await world.connect()
    world.cloud.desired.forget(KEY)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    await async_eventually("the target is free", lambda: world.open_targets == 0)
    writer.close()


async def test_the_streams_end_with_the_session(world: RelayWorld) -> None:
    _, reader, writer = await world.connect()
    for session in list(world.cloud.sessions._open.values()):
        session._websocket.transport.abort()
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_a_worker_without_the_cloud_learns_so_at_once(tmp_path: Path) -> None:
    world = RelayWorld(tmp_path)
    async with world.running():
        await world.cloud.server.stop()
        await async_eventually(
            "the session is over", lambda: not list(world.cloud.sessions.snapshot())
        )

        async def is_told() -> bool:
            status, reader, writer = await world.connect()
            message = await message_of(reader)
            writer.close()
            return (status, message) == (502, "no session with the GlobalManager now")

        await async_eventually("the worker is told", is_told)


async def test_a_head_that_does_not_end(world: RelayWorld) -> None:
    """The connection is closed, and until then others get its place (test_isolation)."""
    _, writer = await asyncio.open_connection(world.host, world.port)
    writer.write(b"CONNECT a:1 HTTP/1.1\r\n")
    status, _, other = await world.connect()
    assert status == 200
    other.close()
    writer.close()


async def test_a_withdrawn_grant_takes_no_new_stream(world: RelayWorld) -> None:
    world.assign(targets=())
    status, _, writer = await world.connect()
    assert status == 403
    writer.close()


async def test_a_stranger_that_tries_without_pause_waits_and_the_workers_do_not(
    world: RelayWorld,
) -> None:
    """50 refusals at once, and then 20 a second for one address."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    tries = [asyncio.create_task(world.connect(secret="6" * 64)) for _ in range(70)]
    await asyncio.wait(tries, return_when=asyncio.FIRST_COMPLETED)
    status, _, writer = await world.connect()
    assert status == 200
    assert not all(each.done() for each in tries), "the worker did not wait for the strangers"
    writer.close()
    for status, _, other in await asyncio.gather(*tries):
        assert status == 407
        other.close()
    assert loop.time() - began >= 0.9


async def test_streams_take_no_place_of_the_worker_api(tmp_path: Path) -> None:
    """The port takes 512 connections. More streams than this leave it open for reports."""
    async with RelayWorld(tmp_path).running() as world:
        streams = []
        for number in range(3):
            key = TaskKey(f"jointinferenceservices.edgeai.io/tenant-{number}/digits")
            secret, worker = str(number) * 64, WorkerName(f"edge-{number}")
            world.assign(key, Uid(f"uid-{number}"), worker=worker, secret=secret)
            await world.assigned()
            host = f"{SERVICE}.tenant-{number}"
            streams += [await world.connect(host, worker=worker, secret=secret) for _ in range(200)]
        assert {status for status, _, _ in streams} == {200}
        reader, writer = await asyncio.open_connection(world.host, world.port)
        writer.write(b"POST /w/none/v1/workers/x/status HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 403 " in await reader.readline()
        writer.close()
        _, first, pen = streams[0]
        pen.write(b"still here")
        assert await first.readexactly(10) == b"still here"
        for _, _, each in streams:
            each.transport.abort()
