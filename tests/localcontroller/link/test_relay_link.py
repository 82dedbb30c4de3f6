"""The relay link goes on after any error, because the LocalController would end with it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NoReturn

import pytest
from websockets.asyncio.server import ServerConnection, serve

from common.relay.carrier import StreamRefused
from localcontroller.link.credentials import Presented
from localcontroller.link.endpoint import Addresses, Endpoint
from localcontroller.link.relay_link import RelayLink
from tests.localcontroller.builders import TIMING
from tests.support.tasks import beside


class Broken(Endpoint, frozen=True, kw_only=True):
    async def dial(self, presented: Presented, *, subprotocol: str, opening_s: float) -> NoReturn:
        raise ValueError("a bug")


@contextlib.asynccontextmanager
async def running(endpoint: Endpoint) -> AsyncIterator[RelayLink]:
    link = RelayLink(endpoint, timing=TIMING, max_streams=1)
    link.is_allowed = True
    async with beside(link.run(), "link"):
        yield link


async def test_an_unexpected_error_refuses_the_stream_and_ends_nothing() -> None:
    async with running(Broken(addresses=Addresses(["ws://127.0.0.1:1"]), node="edge0")) as link:
        for _ in range(2):
            with pytest.raises(StreamRefused, match="a bug"):
                await asyncio.wait_for(link.carrier(), 20)


class Failing(Endpoint, frozen=True, kw_only=True):
    dials: list[str]

    async def dial(self, presented: Presented, *, subprotocol: str, opening_s: float) -> NoReturn:
        self.dials.append(subprotocol)
        raise OSError("no way")


async def test_after_a_failed_dial_workers_are_told_the_reason_without_another_dial() -> None:
    endpoint = Failing(addresses=Addresses(["ws://127.0.0.1:1"]), node="edge0", dials=[])
    async with running(endpoint) as link:
        for _ in range(20):
            with pytest.raises(StreamRefused, match="no relay: no way"):
                await link.carrier()
    assert len(endpoint.dials) <= 2, "a second dial, once the pause is over"


async def test_an_older_global_manager_is_named_as_the_reason() -> None:
    async def old(websocket: ServerConnection) -> None:
        await websocket.wait_closed()

    async with serve(old, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with running(
            Endpoint(addresses=Addresses([f"ws://127.0.0.1:{port}"]), node="edge0")
        ) as link:
            with pytest.raises(StreamRefused, match="upgrade the GlobalManager"):
                await link.carrier()
