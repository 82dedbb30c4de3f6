"""A running REST server."""

from collections.abc import AsyncIterator

import pytest

from tests.globalmanager.rest.cluster import RestSide


@pytest.fixture
async def world() -> AsyncIterator[RestSide]:
    async with RestSide().running() as world:
        yield world
