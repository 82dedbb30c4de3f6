"""Fixtures of the tests of the pod watch."""

from collections.abc import AsyncIterator

import pytest

from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.builders import WORKER, assign, body
from tests.localcontroller.workers.cluster_api import ClusterApi


@pytest.fixture
async def api() -> AsyncIterator[ClusterApi]:
    api = ClusterApi()
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
async def tasks(ledger: Ledger) -> Ledger:
    """A ledger with one task, which has the workers WORKER and "other"."""
    await ledger.apply([assign(body_=body(WORKER, "other"))])
    return ledger
