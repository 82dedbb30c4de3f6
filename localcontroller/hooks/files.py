"""A file or a directory of the node as the source of a Dataset.

The work is done in turns on a few threads, so that a huge file leaves room for others, and ends
with the turn in which nobody waits for it any more. Only regular files are opened: a pipe or a
device could be waited for without end.

Links are followed as the node follows them, whose root may be a directory of this process. Who
exchanges them meanwhile may get something else counted, but learns no more of it than a number.
"""

import asyncio
import contextlib
import errno
import io
import os
import stat
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from localcontroller.hooks.samples import CHUNK_BYTES
from localcontroller.hooks.sources import (
    DIRECTORY,
    TOTAL_S,
    SourceError,
    Threads,
    counter_for,
)

NODE_ROOT: Final = Path("/")  # unless the LocalController sees it elsewhere
MAX_LINKS: Final = 40  # on the way to one file, as Linux has it

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


class Content(NamedTuple):
    samples: int
    mark: Mark | None = None
    """By which it is known again; None: it never is."""


class PathSource:
    """Args: root: where the node's root is for this process; url: a path below it."""

    def __init__(self, root: Path, url: str, format_: str, threads: Threads) -> None:
        self._root = root
        self._url = url
        self._format = format_
        self._threads = threads
        self._mark: Mark | None = None

    async def look(self) -> int | None:
        """See Source"""
        try:
            async with asyncio.timeout(TOTAL_S):
                content = await self._threads.in_turns(self._url, self._read())
        except TimeoutError as error:
            text = f"spec.url: {self._url} cannot be read within {TOTAL_S:.0f} s"
            raise SourceError("Unreadable", text) from error
        if content is None:
            return None
        self._mark = content.mark
        return content.samples

    def _read(self) -> Generator[None, None, Content | None]:
        try:
            return (yield from self._read_changed())
        except OSError as error:
            otherwise = ("Unreadable", f"cannot be read: {error.strerror}")
            reason, text = _PROBLEMS.get(type(error), otherwise)
            raise SourceError(reason, f"spec.url: {self._url} {text}") from error

    def _read_changed(self) -> Generator[None, None, Content | None]:
        path = resolve(self._root, self._url)
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            self._check_is_to_be_listed()
            return Content((yield from count_files(path)))
        if not stat.S_ISREG(found.st_mode):
            raise SourceError("Unreadable", f"spec.url: {self._url} is no file and no directory")
        if _mark(found) == self._mark:
            return None
        return (yield from self._count_samples(path))

    def _check_is_to_be_listed(self) -> None:
        if self._format not in (DIRECTORY, ""):
            raise SourceError(
                "IsADirectory", f"spec.url: {self._url} is a directory; use format {DIRECTORY}"
            )

    def _count_samples(self, path: Path) -> Generator[None, None, Content]:
        counter = counter_for(self._format, self._url)
        with open_at_once(path) as file:
            mark = _mark(os.fstat(file.fileno()))  # what is written from now on has another one
            while chunk := file.read(CHUNK_BYTES):
                counter.feed(chunk)
                yield
        return Content(counter.samples, mark)


def resolve(root: Path, path: str) -> Path:
    """Where the node's `path` is for this process: without links, and never above `root`.

    Raises: OSError
    """
    found: list[str] = []
    left, links = path.split("/")[::-1], 0
    while left:
        part = left.pop()
        if part in ("", "."):
            continue
        next_ = root.joinpath(*found, part)
        mode = next_.lstat().st_mode
        if part == "..":
            del found[-1:]
        elif not stat.S_ISLNK(mode):
            found.append(part)
        elif (links := links + 1) > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        else:
            target = os.readlink(next_)
            found = [] if target.startswith("/") else found
            left += target.split("/")[::-1]
    return root.joinpath(*found)


def count_files(root: Path) -> Generator[None, None, int]:
    """Regular files in the directory and below; there is nothing that a mark could save.

    A link in it is no file, and is not followed. Yields after each entry.
    Raises: OSError if the root itself is gone, or a part may not be read
    """
    files, directories = 0, [os.fspath(root)]
    with os.scandir(root):
        pass  # it is there
    while directories:
        for entry in _entries(directories.pop()):
            yield
            files += entry.is_file(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.path)
    return files


def _entries(directory: str) -> Iterator[os.DirEntry[str]]:
    """None of a directory that has gone away since it was listed."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as found:
        yield from found


def open_at_once(path: Path) -> io.FileIO:
    """A file that may have become a pipe since it was looked at, which nobody writes to."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return open(fd, "rb", buffering=0)


def _mark(found: os.stat_result) -> Mark:
    return Mark(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
