"""A layer over the file system (VFS) through which SQLite reads and writes its files.

https://sqlite.org/vfs.html. The layer passes everything on to the usual VFS, but for the methods of
a file that its user replaces. The disks of tests/simulation and tests/system are such layers.
"""

import _sqlite3
import ctypes
from collections.abc import Callable
from typing import Any, Final

OK: Final = 0

File = ctypes.c_void_p
Write = ctypes.CFUNCTYPE(ctypes.c_int, File, ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong)
Truncate = ctypes.CFUNCTYPE(ctypes.c_int, File, ctypes.c_longlong)
Sync = ctypes.CFUNCTYPE(ctypes.c_int, File, ctypes.c_int)
_Open = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, File, ctypes.c_int, ctypes.c_void_p
)


class Methods(ctypes.Structure):
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


class Layer:
    """
    Args:
        covers: whether the layer is over the file with this path
        replacements: gets the usual methods of a file; returns those of the layer by name, each of
            the type of this module with the same name
    """

    def __init__(
        self,
        name: str,
        *,
        covers: Callable[[str], bool],
        replacements: Callable[[Methods], dict[str, Any]],
    ) -> None:
        self.paths: dict[
            int, str
        ] = {}  # of the files that are open, by the address of sqlite3_file
        self._name = name
        self._covers = covers
        self._replacements = replacements
        self._kept: list[Any] = []  # what SQLite has pointers to
        self._methods: dict[int, Methods] = {}  # by the address of the usual methods

    def mount(self) -> None:
        """Every database that is opened from now on has this layer."""
        library = ctypes.CDLL(_sqlite3.__file__)
        library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        usual = library.sqlite3_vfs_find(None)
        vfs = _Vfs.from_buffer_copy(usual.contents)
        vfs.name = self._name.encode()
        open_usual = _Open(usual.contents.open)

        def open_(_vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
            # SQLite keeps the pointer to the name, so it must not point into an object of Python.
            code: int = open_usual(ctypes.addressof(usual.contents), name, file, flags, out)
            path = "" if name is None else ctypes.string_at(name).decode()
            if code == OK and path and self._covers(path):
                self.paths[file] = path
                self._take_over(file)
            return code

        callback = _Open(open_)
        vfs.open = ctypes.cast(callback, ctypes.c_void_p).value
        self._kept += [library, vfs, callback, usual]
        if library.sqlite3_vfs_register(ctypes.byref(vfs), 1) != OK:
            raise OSError("SQLite takes no file system")

    def _take_over(self, file: int) -> None:
        pointer = ctypes.c_void_p.from_address(file)
        usual = pointer.value
        assert usual is not None
        if usual not in self._methods:
            self._methods[usual] = self._replaced(Methods.from_address(usual))
        pointer.value = ctypes.addressof(self._methods[usual])

    def _replaced(self, usual: Methods) -> Methods:
        methods = Methods.from_buffer_copy(usual)
        for name, callback in self._replacements(usual).items():
            setattr(methods, name, ctypes.cast(callback, ctypes.c_void_p).value)
            self._kept.append(callback)
        return methods
