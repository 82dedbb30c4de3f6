"""Fixtures of the LocalController's tests."""

import subprocess
from collections.abc import AsyncIterator, Iterator
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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "edgeai-test", str(directory)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root can mount a small file system")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)
