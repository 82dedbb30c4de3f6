"""The disks of the simulation lose at a power cut what no real disk would keep, and no more."""

import random
from pathlib import Path

from tests.simulation.disk import Disk


def test_what_a_commit_writes_after_the_power_cut_reaches_no_disk(tmp_path: Path) -> None:
    """As a commit that syncs the header of the log, before it writes the first page of the log."""
    found = set()
    for seed in range(40):
        disk = Disk(tmp_path / str(seed))
        file = disk.directory / "ledger.db-wal"
        file.write_bytes(b"synced")
        disk.note_sync(file)
        disk.fails_at_next_sync = True
        for content in (b"header", b"page"):
            file.write_bytes(content)
            disk.note_sync(file)
        disk.cut_power(random.Random(seed))
        found.add((disk.directory / "ledger.db-wal").read_bytes())
        disk.remove()
    assert found == {b"synced", b"header"}
