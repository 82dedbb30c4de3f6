"""A file or a directory of the node as the source of a Dataset.

Everything here runs on one thread at a time, and ends soon when the event loop does not wait for
it any more. Only regular files are opened: a pipe or a device could be waited for without end.
"""

import os
import stat
import threading
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from localcontroller.hooks.samples import CHUNK_BYTES
from localcontroller.hooks.sources import DIRECTORY, SourceError, Threads, counter_for

_PROBLEMS: Final[dict[type[OSError], tuple[str, str]]] = {
    FileNotFoundError: ("NotFound", "does not exist on this node"),
    NotADirectoryError: ("NotFound", "does not exist on this node: a part of it is a file"),
    PermissionError: ("Forbidden", "may not be read by the LocalController"),
}


class Mark(NamedTuple):
    """Differs once a file was written to or replaced."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int


class NobodyWaits(Exception):
    """The look was given up."""


class PathSource:
    """Args: path: where the file is for this process; url: where it is for people."""

    def __init__(self, path: Path, url: str, format_: str, threads: Threads) -> None:
        self._path = path
        self._url = url
        self._format = format_
        self._threads = threads
        self._mark: Mark | None = None

    async def look(self) -> int | None:
        """See Source"""
        given_up = threading.Event()
        try:
            return await self._threads.run(partial(self._look, given_up))
        finally:
            given_up.set()

    def _look(self, given_up: threading.Event) -> int | None:
        try:
            return self._look_at(given_up)
        except OSError as error:
            otherwise = ("Unreadable", f"cannot be read: {error.strerror}")
            reason, text = _PROBLEMS.get(type(error), otherwise)
            raise SourceError(reason, f"spec.url: {self._url} {text}") from error

    def _look_at(self, given_up: threading.Event) -> int | None:
        found = self._path.stat()
        if stat.S_ISDIR(found.st_mode):
            return self._count_files(given_up)
        if not stat.S_ISREG(found.st_mode):
            raise SourceError("Unreadable", f"spec.url: {self._url} is no file and no directory")
        if _mark(found) == self._mark:
            return None
        return self._count_samples(given_up)

    def _count_files(self, given_up: threading.Event) -> int:
        """The listing is the count; there is nothing that a mark could save."""
        if self._format not in (DIRECTORY, ""):
            raise SourceError(
                "IsADirectory", f"spec.url: {self._url} is a directory; use format {DIRECTORY}"
            )
        files, directories = 0, [os.fspath(self._path)]
        while directories:
            with os.scandir(directories.pop()) as entries:
                for entry in entries:
                    _check(given_up)
                    files += entry.is_file(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        directories.append(entry.path)
        return files

    def _count_samples(self, given_up: threading.Event) -> int:
        counter = counter_for(self._format, self._url)
        # Not blocking: it may have become a pipe since.
        fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as file:
            before = _mark(os.fstat(fd))
            while chunk := file.read(CHUNK_BYTES):
                _check(given_up)
                counter.feed(chunk)
        self._mark = before  # what was written meanwhile has another one
        return counter.samples


def _mark(found: os.stat_result) -> Mark:
    return Mark(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _check(given_up: threading.Event) -> None:
    if given_up.is_set():
        raise NobodyWaits
