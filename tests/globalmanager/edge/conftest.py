"""The edge side of one GlobalManager, running."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.globalmanager.edge.world import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with World(tmp_path / "tokens").running() as world:
        yield world
