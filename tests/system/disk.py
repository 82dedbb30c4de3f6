"""A disk under SQLite that loses, at a power cut, what was not synced, and that can fail.

Called by `tests.system.faulty`, in the process whose ledger is on this disk. The module registers a
VFS of SQLite (https://sqlite.org/vfs.html), which passes everything on to the usual VFS and keeps,
for each open file, what each write since the last sync has overwritten.
"""

import _sqlite3
import ctypes
import os
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

_IOERR_WRITE: Final = 10 | (3 << 8)
_IOERR_FSYNC: Final = 10 | (4 << 8)

_File = ctypes.c_void_p
_Write = ctypes.CFUNCTYPE(ctypes.c_int, _File, ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong)
_Truncate = ctypes.CFUNCTYPE(ctypes.c_int, _File, ctypes.c_longlong)
_Sync = ctypes.CFUNCTYPE(ctypes.c_int, _File, ctypes.c_int)
_Open = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, _File, ctypes.c_int, ctypes.c_void_p
)


class _Methods(ctypes.Structure):
    """sqlite3_io_methods, version 3; only these are looked at by name."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("close", ctypes.c_void_p),
        ("read", ctypes.c_void_p),
        ("write", ctypes.c_void_p),
        ("truncate", ctypes.c_void_p),
        ("sync", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 13),
    )


class _Vfs(ctypes.Structure):
    """sqlite3_vfs, version 3."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_bytes", ctypes.c_int),
        ("max_path", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("open", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 14),
    )


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
        self._paths: dict[int, str] = {}  # by the address of the sqlite3_file
        self._unsynced: defaultdict[str, list[Undo]] = defaultdict(list)
        self._writing = threading.RLock()  # once the power is cut, nothing is written any more
        self._kept: list[Any] = []  # what SQLite has pointers to
        self._methods: dict[int, _Methods] = {}  # by the address of the usual methods

    def mount(self) -> None:
        """Every database that is opened from now on is on this disk."""
        library = ctypes.CDLL(_sqlite3.__file__)
        library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        usual = library.sqlite3_vfs_find(None)
        vfs = _Vfs.from_buffer_copy(usual.contents)
        vfs.name = b"disk-of-a-test"
        open_usual = _Open(usual.contents.open)

        def open_(_vfs: int, path: bytes | None, file: int, flags: int, out: int) -> int:
            result: int = open_usual(ctypes.addressof(usual.contents), path, file, flags, out)
            if result == 0 and path is not None:
                self._paths[file] = path.decode()
                self._take_over(file)
            return result

        callback = _Open(open_)
        vfs.open = ctypes.cast(callback, ctypes.c_void_p).value
        self._kept += [vfs, callback, usual]
        assert library.sqlite3_vfs_register(ctypes.byref(vfs), 1) == 0

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

    def _take_over(self, file: int) -> None:
        pointer = ctypes.c_void_p.from_address(file)
        usual = pointer.value
        assert usual is not None
        if usual not in self._methods:
            self._methods[usual] = self._shim(_Methods.from_address(usual))
        pointer.value = ctypes.addressof(self._methods[usual])

    def _shim(self, usual: _Methods) -> _Methods:
        shim = _Methods.from_buffer_copy(usual)
        write_usual, sync_usual = _Write(usual.write), _Sync(usual.sync)
        truncate_usual = _Truncate(usual.truncate)

        def write(file: int, data: int, count: int, start: int) -> int:
            if self._fails():
                return _IOERR_WRITE
            with self._writing:
                self._note(file, start, count)
                result: int = write_usual(file, data, count, start)
            return result

        def truncate(file: int, size: int) -> int:
            with self._writing:
                self._note(file, size, os.stat(self._paths[file]).st_size - size)
                result: int = truncate_usual(file, size)
            return result

        def sync(file: int, flags: int) -> int:
            if self._fails():
                return _IOERR_FSYNC
            self._on_sync(False)
            with self._writing:
                result: int = sync_usual(file, flags)
                self._unsynced.pop(self._paths[file], None)
            self._on_sync(True)
            return result

        callbacks = (_Write(write), _Truncate(truncate), _Sync(sync))
        shim.write, shim.truncate, shim.sync = (
            ctypes.cast(each, ctypes.c_void_p).value for each in callbacks
        )
        self._kept += [shim, *callbacks]
        return shim

    def _note(self, file: int, start: int, count: int) -> None:
        path = self._paths[file]
        fd = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(fd).st_size
            self._unsynced[path].append(Undo(start, os.pread(fd, max(0, count), start), size))
        finally:
            os.close(fd)
