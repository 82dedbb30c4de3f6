"""The state directory of one cluster: its lock, and every file in it.

    lock           the lock file (flock) of the running cluster
    cluster.db     the objects
    network        X of the cluster's 127.X.0.0/16
    token          the token of the API; only the owner may read this file
    kubeconfig     for kubectl and all other clients
    cluster.json   pid and addresses; exists only while the cluster is ready
    cluster.log    the log of a cluster that runs as a separate process
    bin/           python3 for the containers
    pods/<uid>/    the files of pods

`cluster` locks the directory and writes the files. `process` reads cluster.json.
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

from edgeai.localcluster.errors import StateError

RUNNING_FILE: Final = "cluster.json"
LOG_FILE: Final = "cluster.log"
KUBECONFIG_FILE: Final = "kubeconfig"
CLUSTER: Final = "localcluster"
_NAMES: Final = frozenset(
    {
        *("lock", "network", "token", KUBECONFIG_FILE, RUNNING_FILE, "bin", "pods"),
        *("cluster.db", "cluster.db-wal", "cluster.db-shm", LOG_FILE, f"{LOG_FILE}.1"),
    }
)
_DRAFT: Final = re.compile(r"\.(.+)\.\d+\Z")  # a new file before its renaming


class ClusterProcess(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cluster that is ready for clients: the content of cluster.json."""

    pid: int
    start_ticks: int
    """When the process started, in clock ticks since boot. A later one with its pid has another."""
    api: str
    """URL of the API, without the token."""
    network: str
    """Begin of all addresses of the cluster, like "127.64"."""
    nodes: dict[str, str]
    """Node name -> address."""
    kubeconfig: Path


def is_own(name: str) -> bool:
    """Whether a cluster creates a file or folder of this name in its state directory."""
    draft = _DRAFT.match(name)
    return name in _NAMES or (draft is not None and draft.group(1) in _NAMES)


class StateDirectory:
    """The paths and the small files of one state directory. Args: path: absolute"""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = path / "cluster.db"
        self.kubeconfig = path / KUBECONFIG_FILE
        self.pods = path / "pods"
        self.bin = path / "bin"

    def network(self) -> int | None:
        """X of the cluster's 127.X.0.0/16; None before the first start of the cluster."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int((self.path / "network").read_text(encoding="ascii"))
        return None

    def record_network(self, number: int) -> None:
        _write_state_file(self.path / "network", f"{number}\n".encode())

    def token(self) -> str:
        """The token of the API. The first call creates the token."""
        path = self.path / "token"
        with contextlib.suppress(FileNotFoundError):
            if token := path.read_text(encoding="ascii").strip():
                return token
        token = secrets.token_urlsafe(32)
        _write_state_file(path, token.encode() + b"\n")
        return token

    def write_running(self, running: ClusterProcess) -> None:
        _write_state_file(
            self.path / RUNNING_FILE, msgspec.json.encode(running, enc_hook=str) + b"\n"
        )

    def read_running(self) -> ClusterProcess | None:
        """cluster.json, which may name a process that is gone; None: missing or malformed."""
        with contextlib.suppress(OSError, msgspec.DecodeError):
            content = (self.path / RUNNING_FILE).read_bytes()
            return msgspec.json.decode(
                content, type=ClusterProcess, dec_hook=lambda type_, text: type_(text)
            )
        return None

    def clear_running(self) -> None:
        (self.path / RUNNING_FILE).unlink(missing_ok=True)

    def make_bin(self) -> None:
        """Write the commands `python` and `python3`, which are first in every container's PATH."""
        self.bin.mkdir(exist_ok=True)
        for name in ("python", "python3"):
            # A script and not a symlink, because Python finds its virtual environment by its path.
            script = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
            _write_state_file(self.bin / name, script.encode(), mode=0o700)


@contextlib.contextmanager
def lock_directory(path: Path) -> Iterator[StateDirectory]:
    """Raises: StateError when the directory cannot be used or another cluster holds the lock"""
    state = StateDirectory(path.absolute())
    try:
        state.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(state.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        with open(descriptor, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            state.clear_running()
            state.pods.mkdir(mode=0o700, exist_ok=True)
            state.make_bin()
            yield state
            state.clear_running()
    except BlockingIOError as error:
        problem = "another cluster runs in it; stop that one or give another directory"
        raise StateError(f"state directory {path}: {problem}") from error
    except OSError as error:
        raise StateError(f"state directory {path}: {error.strerror or error}") from error


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Split after the last parenthesis, because field 2 (the program's name) may contain spaces.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(fields[18])


def write_kubeconfig(path: Path, *, url: str, token: str) -> None:
    """Write the kubeconfig, whose content is JSON, which every YAML reader accepts.

    The server's URL contains the token, too, because kubectl sends credentials only over TLS.

    Raises: OSError
    """
    context = {"cluster": CLUSTER, "user": CLUSTER, "namespace": "default"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CLUSTER, "cluster": {"server": f"{url}/{token}"}}],
        "users": [{"name": CLUSTER, "user": {"token": token}}],
        "contexts": [{"name": CLUSTER, "context": context}],
        "current-context": CLUSTER,
    }
    _write_state_file(path, msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")


def _write_state_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file of the state directory atomically. By default only the owner can read it."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    draft.replace(path)
