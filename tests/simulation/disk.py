"""Disks that lose what was not synced. SQLite itself says when it asks for a sync, and of what.

The shipped ledger opens its file with plain sqlite3. This module registers a file system (VFS) in
SQLite that is the usual one, except that a sync is noted here instead of sent to the kernel. At a
power cut a file becomes what it was at its last sync, mixed with any of the blocks written since.
"""

import functools
import random
import shutil
from pathlib import Path
from typing import Any, Final

from tests.simulation.content_disk import ContentDisk
from tests.simulation.torn import torn
from tests.support.sqlite_vfs import OK, Layer, Methods, Sync


class Disk:
    """The directory of one ledger, and that of the Models.

    Args: directory: an empty directory, best in memory (/dev/shm)
    """

    def __init__(self, directory: Path) -> None:
        self._root = directory
        self._generation = 0
        self.fails_at_next_sync = False
        self.is_frozen = False  # the power is gone in the middle of the present work
        self._at_cut: dict[str, bytes] = {}  # name of the file -> its content when the power went
        self.syncs = 0
        self._durable: dict[str, bytes] = {}  # name of the file -> its content at the last sync
        self.directory = self._next_directory()
        self.content = ContentDisk(directory / "models")

    def note_sync(self, path: Path) -> None:
        if path.parent != self.directory:
            return  # of a process that is dead
        if self.fails_at_next_sync and not self.is_frozen:
            self.is_frozen, self._at_cut = True, self._contents()
        if self.is_frozen:
            return  # the present work goes on, and reaches no disk
        self.syncs += 1
        with path.open("rb", buffering=0) as file:
            self._durable[path.name] = file.read()

    def cut_power(self, random_: random.Random) -> None:
        """Give the next process the files with what was synced, and any part of the rest."""
        contents = self._at_cut if self.is_frozen else self._contents()
        self.directory = self._next_directory()
        self.content.cut_power(random_)
        for name, current in contents.items():
            (self.directory / name).write_bytes(torn(self._durable[name], current, random_))
        self._adopt()

    def end_process(self) -> None:
        """Give the next process the files as they are, as after SIGKILL."""
        before, self.directory = self.directory, self._next_directory()
        self.content.end_process()
        self.is_frozen = self.fails_at_next_sync = False
        for file in before.iterdir():
            if file.name.startswith("ledger.db"):
                shutil.copyfile(file, self.directory / file.name)

    def lose(self) -> None:
        """The disk is replaced by an empty one."""
        self.directory = self._next_directory()
        self.content.lose()
        self._durable.clear()
        self.is_frozen = self.fails_at_next_sync = False

    def _adopt(self) -> None:
        """What a process finds after a power cut is on the disk."""
        self.is_frozen = self.fails_at_next_sync = False
        self._durable = {file.name: file.read_bytes() for file in self.directory.iterdir()}

    def _contents(self) -> dict[str, bytes]:
        """What the files with synced content have now. SQLite syncs the directory when it deletes
        its journal, so a file that is gone stays gone.
        """
        paths = [self.directory / name for name in self._durable]
        return {path.name: path.read_bytes() for path in paths if path.exists()}

    def _next_directory(self) -> Path:
        self._generation += 1
        directory = self._root / str(self._generation)
        directory.mkdir(parents=True)
        disks[str(directory)] = self
        return directory

    def remove(self) -> None:
        self.content.close()
        for generation in range(1, self._generation + 1):
            disks.pop(str(self._root / str(generation)), None)
        shutil.rmtree(self._root, ignore_errors=True)


disks: Final[dict[str, Disk]] = {}  # directory -> disk, for the file system of SQLite


def _note_syncs(_usual: Methods) -> dict[str, Any]:
    def sync(file: int, _flags: int) -> int:
        path = Path(layer.paths[file])
        disk = disks.get(str(path.parent))
        if disk is not None:
            disk.note_sync(path)
        return OK

    return {"sync": Sync(sync)}


layer: Final = Layer(
    "simulated-disk",
    covers=lambda path: str(Path(path).parent) in disks,
    replacements=_note_syncs,
)


@functools.cache
def install() -> None:
    """Make SQLite tell `disks` of each sync in their directories."""
    layer.mount()
