"""The edge side of one GlobalManager, running."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from tests.globalmanager.edge.world import EdgeSide


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The GlobalManager runs on uvloop, with sockets and TLS of its own: try those on both."""
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
        "asyncio": asyncio.new_event_loop
    }
    if item.path.stem in ("test_server", "test_tls"):
        factories["uvloop"] = uvloop.new_event_loop
    return factories


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[EdgeSide]:
    async with EdgeSide(tmp_path / "tokens").running() as world:
        yield world
