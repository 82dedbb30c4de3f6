"""The relay link goes on after any error, because the LocalController would end with it."""

import asyncio
import contextlib
from typing import NoReturn

import pytest

from common.relay.carrier import StreamRefused
from localcontroller.link.credentials import Presented
from localcontroller.link.endpoint import Endpoint
from localcontroller.link.relay_link import RelayLink
from tests.localcontroller.builders import TIMING


class Broken(Endpoint, frozen=True, kw_only=True):
    async def dial(self, presented: Presented, *, subprotocol: str, opening_s: float) -> NoReturn:
        raise ValueError("a bug")


async def test_an_unexpected_error_refuses_the_stream_and_ends_nothing() -> None:
    endpoint = Broken(url="ws://127.0.0.1:1", node="edge0")
    link = RelayLink(endpoint, is_connected=lambda: True, timing=TIMING, max_streams=1)
    running = asyncio.create_task(link.run())
    with pytest.raises(StreamRefused, match="a bug"):
        await asyncio.wait_for(link.carrier(), 20)
    assert not running.done()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
