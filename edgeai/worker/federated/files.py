"""Writes files that are either complete and durable, or do not exist."""

import os
from pathlib import Path
from typing import BinaryIO


class NewFile:
    """A file that gets its name only after it is complete and durable."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(path.name + ".new")

    def __enter__(self) -> BinaryIO:
        self._file = self._temporary.open("wb")
        return self._file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with self._file as file:
                if kind is None:
                    file.flush()
                    os.fsync(file.fileno())
            if kind is None:
                self._temporary.rename(self._path)
        finally:
            self._temporary.unlink(missing_ok=True)  # exists only after an error


def replace(path: Path, content: bytes) -> None:
    """Write a file with `content`, or replace the existing file. Raises: OSError"""
    with NewFile(path) as file:
        file.write(content)
    sync(path.parent)


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
