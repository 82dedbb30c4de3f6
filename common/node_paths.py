"""Which paths of a node the Models, Datasets and scripts of jobs may have.

The GlobalManager asks before it mounts a directory, a LocalController before it reads. Pure.
"""

import posixpath
from collections.abc import Collection, Iterator
from typing import Final

ANY: Final = "*"
"""As a prefix: every path is allowed."""
DEFAULT_PREFIXES: Final = ("/", "/home/data")
SYSTEM: Final = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var",
)
"""The directories of the operating system, and those that hold keys and the state of programs."""
_HOMES: Final = "/home"


def obstacle(path: str, prefixes: Collection[str]) -> str:
    """The directory because of which `path` is not allowed; "" when the path is allowed.

    A path is allowed below a prefix. Not allowed are the directories in SYSTEM, hidden directories,
    and the home of a user as a whole, unless a prefix names the directory or one within it. A path
    below none of the prefixes has the obstacle "/".

    Args:
        path: absolute and normal: without "..", "." and doubled slashes
        prefixes: absolute paths, or ANY
    """
    if ANY in prefixes:
        return ""
    allowed = max((len(p) for p in map(normal, prefixes) if is_below(path, p)), default=0)
    denied = max(_denied(path), key=len, default="")
    if not allowed:
        return "/"
    return denied if len(denied) > allowed else ""


def is_below(path: str, directory: str) -> bool:
    """Whether `path` is `directory`, or within it."""
    return directory == "/" or path == directory or path.startswith(f"{directory}/")


def _denied(path: str) -> Iterator[str]:
    """The directories on the way to `path` that need a prefix of their own."""
    if path == _HOMES or posixpath.dirname(path) == _HOMES:
        yield path
    directory = path
    while directory != "/":
        if directory in SYSTEM or posixpath.basename(directory).startswith("."):
            yield directory
        directory = posixpath.dirname(directory)


def normal(path: str) -> str:
    # normpath keeps two leading slashes, because POSIX does not define their meaning.
    return "/" + posixpath.normpath(path).lstrip("/")
