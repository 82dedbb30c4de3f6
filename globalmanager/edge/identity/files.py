"""Detects without reading a credential file whether the file was replaced."""

from pathlib import Path

Stamp = tuple[int, int, int]
"""Modification time, size and inode: another stamp means that the file was replaced."""


def stamp(path: Path) -> Stamp | None:
    """The stamp of a file. None when the file does not exist or this process may not read it."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
