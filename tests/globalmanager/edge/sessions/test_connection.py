"""The order of messages that are read at once and of those that wait. A real WebSocket."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from globalmanager.edge.sessions.connection import SessionConnection
from tests.support.waiting import async_eventually


class Both:
    """Both ends of a connection."""

    def __init__(self, client: ClientConnection, server: SessionConnection) -> None:
        self.client, self.server = client, server
        self.offered: list[bytes] = []  # in the order of their arrival
        self.refuses: set[bytes] = set()
        server.reader = self._read

    def _read(self, message: bytes) -> bool:
        assert type(message) is bytes
        self.offered.append(message)
        return message not in self.refuses


@pytest.fixture
async def both() -> AsyncIterator[Both]:
    accepted: asyncio.Future[ServerConnection] = asyncio.get_running_loop().create_future()

    async def handle(websocket: ServerConnection) -> None:
        accepted.set_result(websocket)
        await websocket.wait_closed()

    async with (
        serve(handle, "127.0.0.1", 0, create_connection=SessionConnection) as server,
        connect(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}") as client,
    ):
        yield Both(client, cast(SessionConnection, await accepted))


async def test_a_message_is_offered_and_not_queued(both: Both) -> None:
    await both.client.send(b"first")
    await async_eventually("the message", lambda: both.offered)
    assert not both.server.recv_messages.frames


async def test_a_message_behind_one_that_waits_waits_too(both: Both) -> None:
    both.refuses = {b"first"}
    for message in (b"first", b"second"):
        await both.client.send(message)
    await async_eventually("both", lambda: len(both.server.recv_messages.frames) == 2)
    assert both.offered == [b"first"]
    assert [await both.server.recv(), await both.server.recv()] == [b"first", b"second"]
    await both.client.send(b"third")
    await async_eventually("the third", lambda: both.offered == [b"first", b"third"])


async def test_text_and_fragments_wait_in_the_queue(both: Both) -> None:
    await both.client.send("text")
    assert await both.server.recv() == "text"
    await both.client.send([b"frag", b"ments"])
    assert await both.server.recv() == b"fragments"
    await both.client.send(b"whole")
    await async_eventually("the message", lambda: both.offered == [b"whole"])


async def test_a_ping_is_answered(both: Both) -> None:
    answer = await both.client.ping()
    async with asyncio.timeout(5):
        await answer
    assert not both.offered
