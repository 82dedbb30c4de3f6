"""A file or a directory of the node as the source of a Dataset.

Reading runs in turns on a few threads, so that a huge file leaves threads for other Datasets. The
source opens only regular files, because reading a pipe or a device could block for ever.

This process may see the node's root in another directory. Even then a symbolic link leads to the
same file as on the node. A person who replaces a link at the right moment can make the
LocalController count another file, but learns only the number of its samples.
"""

import asyncio
import contextlib
import errno
import io
import os
import posixpath
import stat
from collections.abc import Collection, Generator, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from common.node_paths import obstacle
from localcontroller.hooks.samples import CHUNK_BYTES
from localcontroller.hooks.sources import (
    DIRECTORY,
    CountRequest,
    DatasetSource,
    SourceError,
    file_sample_counter,
)

NODE_ROOT: Final = Path("/")  # unless the setting data_root names another directory
MAX_LINKS: Final = 40  # symbolic links on the way to one file, as in Linux

_PROBLEMS: Final[dict[type[OSError], tuple[str, str]]] = {
    FileNotFoundError: ("NotFound", "does not exist on this node"),
    NotADirectoryError: ("NotFound", "does not exist on this node: a part of it is a file"),
    PermissionError: ("Forbidden", "may not be read by the LocalController"),
}


_fingerprint: Final = attrgetter("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
"""Facts about a file. They change if the file is written or replaced."""


class FileContent(NamedTuple):
    samples: int
    fingerprint: tuple[int, ...] | None = None
    """None: the content is a directory, and each check counts its files again."""


class PathSource(DatasetSource):
    """A file or directory on the node.

    Args:
        request: the url is an absolute path on the node
        root: the directory where this process sees the node's root
        prefixes: where the path may lead, also by links. See common.node_paths
    """

    def __init__(self, request: CountRequest, root: Path, prefixes: Collection[str]) -> None:
        super().__init__(request)
        self._root, self._prefixes = root, prefixes
        self._fingerprint: tuple[int, ...] | None = None

    async def count_if_changed(self) -> int | None:
        try:
            async with asyncio.timeout(self._timeouts.total_s):
                content = await self._threads.in_turns(self._url, self._read())
        except TimeoutError as error:
            text = f"spec.url: {self._url} cannot be read within {self._timeouts.total_s:g} s"
            raise SourceError("Unreadable", text) from error
        if content is None:
            return None
        self._fingerprint = content.fingerprint
        return content.samples

    def _read(self) -> Generator[None, None, FileContent | None]:
        try:
            return (yield from self._read_changed())
        except OSError as error:
            otherwise = ("Unreadable", f"cannot be read: {error.strerror}")
            reason, text = _PROBLEMS.get(type(error), otherwise)
            raise SourceError(reason, f"spec.url: {self._url} {text}") from error

    def _read_changed(self) -> Generator[None, None, FileContent | None]:
        self._check_prefixes(self._url)
        path = resolve_on_node(self._root, self._url)
        self._check_prefixes(f"/{path.relative_to(self._root)}")
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            if self._format not in (DIRECTORY, ""):
                text = f"spec.url: {self._url} is a directory; use format {DIRECTORY}"
                raise SourceError("IsADirectory", text)
            return FileContent((yield from count_files(path)))
        if not stat.S_ISREG(status.st_mode):
            raise SourceError("Unreadable", f"spec.url: {self._url} is no file and no directory")
        if _fingerprint(status) == self._fingerprint:
            return None
        return (yield from self._count_samples(path))

    def _check_prefixes(self, path: str) -> None:
        """Raises: SourceError. The text is the same for every place to which a link leads"""
        if obstacle(posixpath.normpath(f"/{path.lstrip('/')}"), self._prefixes):
            text = f"spec.url: {self._url} is or leads to a place that --node-path-prefixes forbids"
            raise SourceError("Forbidden", text)

    def _count_samples(self, path: Path) -> Generator[None, None, FileContent]:
        counter = file_sample_counter(self._format, self._url)
        with open_without_waiting(path) as file:
            # Before reading, so that the next check notices a write during the reading.
            fingerprint = _fingerprint(os.fstat(file.fileno()))
            while chunk := file.read(CHUNK_BYTES):
                counter.feed(chunk)
                yield
        return FileContent(counter.samples, fingerprint)


def resolve_on_node(root: Path, path: str) -> Path:
    """The path where this process finds the node's `path`: without links, always below `root`.

    Raises: OSError
    """
    parts: list[str] = []
    components, links = path.split("/")[::-1], 0
    while components:
        part = components.pop()
        if part in ("", "."):
            continue
        next_ = root.joinpath(*parts, part)
        mode = next_.lstat().st_mode
        if part == "..":
            del parts[-1:]
        elif not stat.S_ISLNK(mode):
            parts.append(part)
        elif (links := links + 1) > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        else:
            target = os.readlink(next_)
            parts = [] if target.startswith("/") else parts
            components += target.split("/")[::-1]
    return root.joinpath(*parts)


def count_files(root: Path) -> Generator[None, None, int]:
    """Count the regular files in a directory and its subdirectories.

    The generator yields once for each entry, so that the caller can pause or stop the count. Its
    return value is the number of files. It does not count or follow symbolic links.

    Raises: OSError if `root` is gone, or if this process has no right to read a subdirectory
    """
    files, directories = 0, [os.fspath(root)]
    with os.scandir(root):
        pass  # fails if `root` is gone
    while directories:
        for entry in _directory_entries(directories.pop()):
            yield
            files += entry.is_file(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.path)
    return files


def _directory_entries(directory: str) -> Iterator[os.DirEntry[str]]:
    """The entries of a directory; no entry if the directory was deleted after it was found."""
    with (
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        os.scandir(directory) as entries,
    ):
        yield from entries


def open_without_waiting(path: Path) -> io.FileIO:
    """Open a file. Does not block, even if the file was replaced by a pipe without a writer."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return open(fd, "rb", buffering=0)
