"""Disks that lose what was not synced. SQLite itself says when it asks for a sync, and of what.

The shipped ledger opens its file with plain sqlite3. This module registers a file system (VFS) in
SQLite that is the usual one, except that a sync is noted here instead of sent to the kernel. At a
power cut a file becomes what it was at its last sync, mixed with any of the blocks written since.
"""

import ctypes
import functools
import os
import random
import shutil
from pathlib import Path
from typing import Any, Final

BLOCK: Final = 4096
_OK: Final = 0

_OPEN = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_int),
)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)


class _Vfs(ctypes.Structure):
    """sqlite3_vfs, version 3: https://sqlite.org/c3ref/vfs.html"""

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


class _Methods(ctypes.Structure):
    """sqlite3_io_methods, version 3: https://sqlite.org/c3ref/io_methods.html"""

    _fields_ = (
        ("version", ctypes.c_int),
        ("close", ctypes.c_void_p),
        ("read", ctypes.c_void_p),
        ("write", ctypes.c_void_p),
        ("truncate", ctypes.c_void_p),
        ("sync", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 13),
    )


class _File(ctypes.Structure):
    _fields_ = (("methods", ctypes.POINTER(_Methods)),)


class Disk:
    """The directory of one ledger.

    Args: directory: an empty directory, best in memory (/dev/shm)
    """

    def __init__(self, directory: Path) -> None:
        self._root = directory
        self._generation = 0
        self.fails_at_next_sync = False
        self.is_frozen = False  # the power is gone in the middle of the present work
        self.syncs = 0
        self._durable: dict[str, bytes] = {}  # name of the file -> its content at the last sync
        self.directory = self._next_directory()

    def note_sync(self, path: Path) -> None:
        if path.parent != self.directory:
            return  # of a process that is dead
        self.is_frozen |= self.fails_at_next_sync
        if self.is_frozen:
            return
        self.syncs += 1
        with path.open("rb", buffering=0) as file:
            self._durable[path.name] = file.read()

    def cut_power(self, random_: random.Random) -> None:
        """Give the next process the files with what was synced, and any part of the rest."""
        before, self.directory = self.directory, self._next_directory()
        for name, durable in self._durable.items():
            path = before / name
            if not path.exists():
                continue  # SQLite syncs the directory when it deletes its journal
            current = path.read_bytes()
            (self.directory / name).write_bytes(torn(durable, current, random_))
        self._adopt()

    def end_process(self) -> None:
        """Give the next process the files as they are, as after SIGKILL."""
        before, self.directory = self.directory, self._next_directory()
        self.is_frozen = self.fails_at_next_sync = False
        for file in before.iterdir():
            if file.name.startswith("ledger.db"):
                shutil.copyfile(file, self.directory / file.name)

    def lose(self) -> None:
        """The disk is replaced by an empty one."""
        self.directory = self._next_directory()
        self._durable.clear()
        self.is_frozen = self.fails_at_next_sync = False

    def _adopt(self) -> None:
        """What a process finds after a power cut is on the disk."""
        self.is_frozen = self.fails_at_next_sync = False
        self._durable = {file.name: file.read_bytes() for file in self.directory.iterdir()}

    def _next_directory(self) -> Path:
        self._generation += 1
        directory = self._root / str(self._generation)
        directory.mkdir(parents=True)
        disks[str(directory)] = self
        return directory

    def remove(self) -> None:
        for generation in range(1, self._generation + 1):
            disks.pop(str(self._root / str(generation)), None)
        shutil.rmtree(self._root, ignore_errors=True)


disks: Final[dict[str, Disk]] = {}  # directory -> disk, for the file system of SQLite


def torn(durable: bytes, current: bytes, random_: random.Random) -> bytes:
    """A content that a file may have after a power cut: each block written since the last sync has
    reached the disk, or not.
    """
    fate = random_.random()
    if fate < 0.5 or durable == current:
        return durable
    if fate < 0.6:
        return current
    blocks = range(0, max(len(durable), len(current)), BLOCK)
    mixed = bytearray(max(len(durable), len(current)))
    end = len(durable)
    for start in blocks:
        source = current if random_.random() < 0.5 else durable
        block = source[start : start + BLOCK]
        mixed[start : start + len(block)] = block
        if source is current:
            end = max(end, start + len(block))
    return bytes(mixed[:end])


@functools.cache
def install() -> list[Any]:
    """Make SQLite tell `disks` of each sync in their directories. Returns: what must stay alive"""
    library = ctypes.CDLL("libsqlite3.so.0")
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    usual = library.sqlite3_vfs_find(None)
    vfs = _Vfs.from_buffer_copy(usual.contents)
    vfs.name = b"simulated-disk"
    usual_open = _OPEN(usual.contents.open)
    paths: dict[int, Path] = {}  # address of the open file -> its path
    methods_of: dict[int, _Methods] = {}

    def sync(file: int, flags: int) -> int:
        path = paths[file]
        disk = disks.get(str(path.parent))
        if disk is not None:
            disk.note_sync(path)
        return _OK

    sync_callback = _SYNC(sync)

    def open_(own: int, name: bytes, file: int, flags: int, out: Any) -> int:
        code: int = usual_open(own, name, file, flags, out)
        opened = _File.from_address(file)
        if code == _OK and name and os.path.dirname(name).decode() in disks:
            original = ctypes.addressof(opened.methods.contents)
            if original not in methods_of:
                methods_of[original] = _Methods.from_buffer_copy(opened.methods.contents)
                methods_of[original].sync = ctypes.cast(sync_callback, ctypes.c_void_p)
            paths[file] = Path(name.decode())
            opened.methods = ctypes.pointer(methods_of[original])
        return code

    open_callback = _OPEN(open_)
    vfs.open = ctypes.cast(open_callback, ctypes.c_void_p)
    if library.sqlite3_vfs_register(ctypes.byref(vfs), 1) != _OK:
        raise OSError("SQLite takes no file system")
    return [library, vfs, usual_open, sync_callback, open_callback, methods_of, paths]
