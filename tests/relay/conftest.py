from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.relay.world import RelayWorld


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[RelayWorld]:
    async with RelayWorld(tmp_path).running() as world:
        yield world
