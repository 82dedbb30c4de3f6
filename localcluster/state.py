"""The state directory of one cluster: its lock, and every file in it.

    lock           held by the running cluster (flock)
    cluster.db     the objects
    network        X of the cluster's 127.X.0.0/16
    token          of the API; only the owner may read it
    kubeconfig     for kubectl and everyone else
    cluster.json   pid and addresses; exists only while the cluster is ready
    cluster.log    of a cluster in a process of its own
    bin/           python3, as the containers see it
    pods/<uid>/    what pods have on disk

Locked and written by cluster; process reads cluster.json.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from localcluster.errors import StateError

RUNNING_FILE: Final = "cluster.json"
LOG_FILE: Final = "cluster.log"
KUBECONFIG_FILE: Final = "kubeconfig"
_NAMES: Final = frozenset(
    {
        *("lock", "network", "token", KUBECONFIG_FILE, RUNNING_FILE, "bin", "pods"),
        *("cluster.db", "cluster.db-wal", "cluster.db-shm", LOG_FILE, f"{LOG_FILE}.1"),
    }
)
_DRAFT: Final = re.compile(r"\.(.+)\.\d+\Z")  # a file that was not yet renamed into place


class Running(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of cluster.json."""

    pid: int
    start_ticks: int
    """When the process started, in clock ticks since boot: another process with its pid differs."""
    api: str
    network: str
    nodes: dict[str, str]
    """Name -> address."""


def is_own(name: str) -> bool:
    """Whether a cluster creates a file or folder of this name in its state directory."""
    draft = _DRAFT.match(name)
    return name in _NAMES or (draft is not None and draft.group(1) in _NAMES)


class StateDirectory(msgspec.Struct, frozen=True):
    """Args: path: absolute."""

    path: Path

    @property
    def database(self) -> Path:
        return self.path / "cluster.db"

    @property
    def kubeconfig(self) -> Path:
        return self.path / KUBECONFIG_FILE

    @property
    def pods(self) -> Path:
        return self.path / "pods"

    @property
    def bin(self) -> Path:
        return self.path / "bin"

    def network(self) -> int | None:
        """X of the cluster's 127.X.0.0/16; None before its first start."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int((self.path / "network").read_text(encoding="ascii"))
        return None

    def record_network(self, number: int) -> None:
        _replace(self.path / "network", f"{number}\n".encode())

    def token(self) -> str:
        """The API's token; created by the first call."""
        path = self.path / "token"
        with contextlib.suppress(FileNotFoundError):
            if token := path.read_text(encoding="ascii").strip():
                return token
        token = secrets.token_urlsafe(32)
        _replace(path, token.encode() + b"\n")
        return token

    def write_running(self, running: Running) -> None:
        _replace(self.path / RUNNING_FILE, msgspec.json.encode(running) + b"\n")

    def read_running(self) -> Running | None:
        """The content of cluster.json. The process that it names may be gone."""
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode((self.path / RUNNING_FILE).read_bytes(), type=Running)
        return None

    def clear_running(self) -> None:
        (self.path / RUNNING_FILE).unlink(missing_ok=True)

    def make_bin(self) -> None:
        """Write the commands that come first in every container's PATH."""
        self.bin.mkdir(exist_ok=True)
        for name in ("python", "python3"):
            # Not a symlink: an interpreter finds its virtual environment by its own path.
            script = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
            _replace(self.bin / name, script.encode(), mode=0o700)


@contextlib.contextmanager
def lock_directory(path: Path) -> Iterator[StateDirectory]:
    """Create the directory if it is missing, and lock it for one cluster.

    Raises: StateError when it cannot be used or another cluster holds it.
    """
    state = StateDirectory(path.absolute())
    try:
        state.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(state.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StateError(f"state directory {path}: {error.strerror}") from error
    try:
        _lock(descriptor, path)
        state.clear_running()
        state.pods.mkdir(mode=0o700, exist_ok=True)
        state.make_bin()
        yield state
        state.clear_running()
    except OSError as error:
        raise StateError(f"state directory {path}: {error}") from error
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StateError(
            f"state directory {path}: another cluster runs in it; stop that one or give another"
            " directory"
        ) from error


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None: there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Split after the last parenthesis: field 2, the program's name, may hold spaces.
    return int(stat.rpartition(")")[2].split()[19])


def _replace(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write the file atomically."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.replace(path)
