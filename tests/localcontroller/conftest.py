"""Fixtures of the LocalController's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from localcontroller.ledger.ledger import Ledger


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
async def ledger(state_dir: Path) -> AsyncIterator[Ledger]:
    ledger = await Ledger.open(state_dir, reserve_bytes=64 * 1024)
    yield ledger
    await ledger.close()
