"""Tells that files were replaced, without reading them: for credentials that are rotated.

Used by whatever keeps a file's content in memory: it compares the stamp with the one before.
"""

from pathlib import Path
from typing import NamedTuple


class FileStamp(NamedTuple):
    """Differs from one content of a file to the next."""

    mtime_ns: int
    size_bytes: int
    inode: int


def stamp(path: Path) -> FileStamp | None:
    """None: there is no such file, or it is not ours to look at."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return FileStamp(stat.st_mtime_ns, stat.st_size, stat.st_ino)
