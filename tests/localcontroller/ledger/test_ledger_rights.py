"""The ledger is readable for its process alone, whatever the umask and whoever made the files."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcontroller.ledger.ledger import Ledger


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def rights(directory: Path) -> dict[str, str]:
    found = {each.name: each for each in (directory, *directory.iterdir())}
    return {name: oct(stat.S_IMODE(each.stat().st_mode)) for name, each in found.items()}


def leave_a_file(directory: Path) -> None:
    (directory / "other").touch(mode=0o644)
    directory.chmod(0o755)


async def open_and_close(directory: Path) -> None:
    ledger = await Ledger.open(directory)
    try:
        assert set(rights(directory).values()) == {"0o600", "0o700"}
    finally:
        await ledger.close()


async def test_a_new_ledger(tmp_path: Path) -> None:
    await open_and_close(tmp_path / "state")
    assert rights(tmp_path / "state")["state"] == "0o700"


async def test_the_files_of_an_earlier_release(tmp_path: Path) -> None:
    directory = tmp_path / "state"
    await open_and_close(directory)
    (directory / "ledger.db.damaged-1").touch()
    for each in (directory, *directory.iterdir()):
        each.chmod(0o755 if each.is_dir() else 0o644)
    await open_and_close(directory)


async def test_a_directory_with_other_files_keeps_its_rights(tmp_path: Path) -> None:
    leave_a_file(tmp_path)
    ledger = await Ledger.open(tmp_path)
    await ledger.close()
    found = rights(tmp_path)
    assert (found[tmp_path.name], found["other"], found["ledger.db"]) == (
        "0o755",
        "0o644",
        "0o600",
    )
