"""Detects without reading a credential file whether the file was replaced.

node_tokens and tls keep the contents of credential files in memory. They compare a file's stamp
with its earlier stamp. When the two stamps differ, they read the file again.
"""

from pathlib import Path
from typing import NamedTuple


class CredentialStamp(NamedTuple):
    """Identifies one content of a credential file. A replaced file has another stamp."""

    mtime_ns: int
    size_bytes: int
    inode: int


def stamp(path: Path) -> CredentialStamp | None:
    """The stamp of a file. None when the file does not exist or this process may not read it."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return CredentialStamp(stat.st_mtime_ns, stat.st_size, stat.st_ino)
