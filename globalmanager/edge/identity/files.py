"""Finds out that a file was replaced, without reading it: for credentials that are rotated.

Used by modules that keep a file's content in memory: they compare its stamp with the one before.
"""

from pathlib import Path
from typing import NamedTuple


class FileStamp(NamedTuple):
    """Different for each content of a file."""

    mtime_ns: int
    size_bytes: int
    inode: int


def stamp(path: Path) -> FileStamp | None:
    """None: there is no such file, or this process may not look at it."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return FileStamp(stat.st_mtime_ns, stat.st_size, stat.st_ino)
