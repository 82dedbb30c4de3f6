"""How many streams there may be, of whom, and that each of them counts no longer than it lives."""

import asyncio
import contextlib
import hashlib
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from common import wire
from common.relay import frames
from edgeai.ids import TaskKey, Uid, WorkerName
from globalmanager.contract import ServicePort
from globalmanager.edge.sessions.relay import RelayLimits
from localcontroller.workers.proxy import MAX_STREAMS
from localcontroller.workers.rates import GRANT_SHARE, NAMESPACE_SHARE
from tests.globalmanager.edge.world import A, B, dial, token
from tests.relay.world import SERVICE, RelayWorld, message_of
from tests.support.waiting import async_eventually

FULL = "too many connections through this proxy"


class Tenant:
    """A worker of a task of its own."""

    def __init__(self, world: RelayWorld, namespace: str, number: int) -> None:
        self._world = world
        self._namespace = namespace
        self._secret = str(number) * 64
        self._worker = f"edge-{number}"
        key = TaskKey(f"jointinferenceservices.edgeai.io/{namespace}/task-{number}")
        uid, worker = Uid(f"uid-{number}"), WorkerName(self._worker)
        world.assign(key, uid, worker=worker, secret=self._secret)

    async def connect(self) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
        host = f"{SERVICE}.{self._namespace}"
        return await self._world.connect(host, worker=self._worker, secret=self._secret)

    async def fill(self, number: int) -> list[asyncio.StreamWriter]:
        """Open streams, all of which are taken."""
        found = [await self.connect() for _ in range(number)]
        assert {status for status, _, _ in found} == {200}
        return [writer for _, _, writer in found]

    async def is_refused(self) -> bool:
        status, reader, writer = await self.connect()
        is_full = status == 503 and await message_of(reader) == FULL
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return is_full


async def test_a_task_a_namespace_and_a_node_have_a_largest_number_of_streams(
    tmp_path: Path,
) -> None:
    async with RelayWorld(tmp_path).running() as world:
        one, two, three = (Tenant(world, "red", number) for number in range(3))
        four, five, six = (Tenant(world, space, 3 + n) for n, space in enumerate("abb"))
        await world.assigned()
        of_task, of_namespace = MAX_STREAMS // GRANT_SHARE, MAX_STREAMS // NAMESPACE_SHARE
        writers = await one.fill(of_task)
        assert await one.is_refused(), "its task has a quarter"
        writers += await two.fill(of_namespace - of_task)
        assert await three.is_refused(), "its namespace has a half"
        writers += await four.fill(of_task)
        writers += await five.fill(MAX_STREAMS - of_namespace - of_task)
        assert await six.is_refused(), "the node has all"
        last = writers.pop()
        last.transport.abort()

        async def has_room() -> bool:
            return not await six.is_refused()

        await async_eventually("room", has_room)
        for writer in writers:
            writer.transport.abort()
        await async_eventually("the end of all streams", lambda: world.open_targets == 0)


async def test_refused_streams_do_not_count(world: RelayWorld) -> None:
    for _ in range(MAX_STREAMS // GRANT_SHARE + 1):
        status, _, writer = await world.connect("another")
        assert status == 403
        writer.close()
    status, _, writer = await world.connect()
    assert status == 200
    writer.close()


async def test_streams_to_a_service_that_is_not_there_do_not_count(tmp_path: Path) -> None:
    limits = RelayLimits(streams_per_namespace=2)
    async with RelayWorld(tmp_path, relay_limits=limits).running() as world:
        port = 1  # nobody listens there
        world.assign(targets=(ServicePort(SERVICE, port),))
        for _ in range(4):
            status, _, writer = await world.connect(port=port)
            assert status == 502
            writer.close()


async def test_more_streams_than_a_replica_carries(tmp_path: Path) -> None:
    async with RelayWorld(tmp_path, relay_limits=RelayLimits(streams=2)).running() as world:
        tenants = [Tenant(world, f"space-{number}", number) for number in range(3)]
        await world.assigned()
        writers = [(await each.fill(1))[0] for each in tenants[:2]]
        status, reader, writer = await tenants[2].connect()
        assert (status, "too many streams" in await message_of(reader)) == (503, True)
        for each in (*writers, writer):
            each.transport.abort()


async def test_a_newer_relay_of_a_node_replaces_the_older_one(world: RelayWorld) -> None:
    """A node has one, whatever it dials: the bound of its streams is of one connection."""
    async with relay_of_node(world) as older, relay_of_node(world) as newer:
        await older.wait_closed()
        assert older.close_code == wire.Close.REPLACED
        await (await newer.ping())
        assert world.cloud.sample("edgeai_edge_relays") == 1


async def test_the_relay_ends_with_the_right_of_its_node(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    async with (
        RelayWorld(tmp_path, review_s=0.05).running() as world,
        relay_of_node(world) as relay,
    ):
        new = tokens.with_suffix(".new")
        new.write_text(f"{B} {hashlib.sha256(token(A).encode()).hexdigest()}\n")
        new.replace(tokens)
        await relay.wait_closed()
        assert relay.close_code == wire.Close.REVOKED


def relay_of_node(world: RelayWorld) -> connect:
    return dial(world.cloud.url, token(A), subprotocol=frames.SUBPROTOCOL)


async def test_a_refused_worker_is_let_go(world: RelayWorld) -> None:
    """It has a second to read why, and holds its connection no longer."""
    status, _, writer = await world.connect("another")
    assert status == 403

    def is_cut() -> bool:
        writer.write(b"x")
        return writer.transport.is_closing()

    await async_eventually("the end of the connection", is_cut)
    with pytest.raises(ConnectionError):
        await writer.drain()
