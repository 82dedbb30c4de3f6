"""A disk under SQLite that loses, at a power cut, what was not synced, and that can fail.

Called by `tests.system.faulty`, in the process whose ledger is on this disk. The module registers a
VFS of SQLite (https://sqlite.org/vfs.html), which passes everything on to the usual VFS and keeps,
for each open file, what each write since the last sync has overwritten.
"""

import os
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.support.sqlite_vfs import Layer, Methods, Sync, Truncate, Write

_IOERR_WRITE: Final = 10 | (3 << 8)
_IOERR_FSYNC: Final = 10 | (4 << 8)


class Undo(NamedTuple):
    """What one write or truncation has replaced."""

    start: int
    old: bytes
    size: int
    """Of the file, before."""


class Disk:
    """
    Args:
        on_sync: called before each sync (False) and after it (True)
        fails: whether this write or sync ends with an I/O error; asked for each of them
    """

    def __init__(
        self, on_sync: Callable[[bool], None], fails: Callable[[], bool] = lambda: False
    ) -> None:
        self._on_sync = on_sync
        self._fails = fails
        self._layer = Layer(
            "disk-of-a-test", covers=lambda _path: True, replacements=self._replacements
        )
        self._unsynced: defaultdict[str, list[Undo]] = defaultdict(list)
        self._writing = threading.RLock()  # once the power is cut, nothing is written any more

    def mount(self) -> None:
        """Every database that is opened from now on is on this disk."""
        self._layer.mount()

    def cut_power(self, seed: int) -> int:
        """Undo, of what was not synced, all or a part that `seed` chooses; the end of the process
        must follow. Returns: the writes that are undone
        """
        self._writing.acquire()
        chance, undone = random.Random(seed), 0
        for path, writes in self._unsynced.items():
            if seed % 2 and writes:  # the disk wrote some of them, in an order of its own
                writes = [each for each in writes if chance.random() < 0.5]
            fd = os.open(path, os.O_RDWR)
            for write in reversed(writes):
                os.pwrite(fd, write.old, write.start)
                if not seed % 2:
                    os.truncate(fd, write.size)
                undone += 1
            os.close(fd)
        return undone

    # ---- one file -------------------------------------------------------------------------------

    def _replacements(self, usual: Methods) -> dict[str, Any]:
        write_usual, sync_usual = Write(usual.write), Sync(usual.sync)
        truncate_usual = Truncate(usual.truncate)

        def write(file: int, data: int, count: int, start: int) -> int:
            if self._fails():
                return _IOERR_WRITE
            with self._writing:
                self._note(file, start, count)
                result: int = write_usual(file, data, count, start)
            return result

        def truncate(file: int, size: int) -> int:
            with self._writing:
                self._note(file, size, os.stat(self._layer.paths[file]).st_size - size)
                result: int = truncate_usual(file, size)
            return result

        def sync(file: int, flags: int) -> int:
            if self._fails():
                return _IOERR_FSYNC
            self._on_sync(False)
            with self._writing:
                result: int = sync_usual(file, flags)
                self._unsynced.pop(self._layer.paths[file], None)
            self._on_sync(True)
            return result

        return {"write": Write(write), "truncate": Truncate(truncate), "sync": Sync(sync)}

    def _note(self, file: int, start: int, count: int) -> None:
        path = self._layer.paths[file]
        fd = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            self._unsynced[path].append(Undo(start, os.pread(fd, max(0, count), start), size))
        finally:
            os.close(fd)
