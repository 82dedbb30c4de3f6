"""A running REST server."""

from collections.abc import AsyncIterator

import pytest

from tests.globalmanager.rest.cluster import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World().running() as world:
        yield world
