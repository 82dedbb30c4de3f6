"""Starts and stops a cluster that runs as a separate process.

Every function blocks, so a program with an event loop must call the functions in a thread. The
state directory names the process of the cluster, so any process may stop the cluster.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from edgeai.localcluster.errors import ClusterError
from edgeai.localcluster.state import LOG_FILE, ClusterProcess, StateDirectory, start_ticks

START_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 15.0
_LOOK_EVERY_S: Final = 0.05
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FULL_BYTES: Final = 1024 * 1024


class StartFailed(ClusterError):
    """The cluster ended before it was ready, or was not ready in time."""


def start(
    state_dir: Path,
    *,
    nodes: Sequence[str] = (),
    pod_env: Mapping[str, str] | None = None,
    isolated_nodes: Sequence[str] = (),
    openings: Sequence[str] = (),
    timeout_s: float = START_TIMEOUT_S,
) -> ClusterProcess:
    """Start a cluster in a process session of its own, and wait until the cluster is ready.

    Args:
        nodes: names of the nodes; an empty sequence means the default nodes
        pod_env: environment variables of every container
        isolated_nodes: nodes whose pods reach only each other and `openings`
        openings: SERVICE.NAMESPACE:PORT or ADDRESS:PORT
    Raises: StartFailed with the last line of the cluster's log
    """
    state = StateDirectory(state_dir.absolute())
    if present := running(state_dir):
        raise StartFailed(f"a cluster runs in {state.path} already, process {present.pid}")
    argv = [sys.executable, "-m", "edgeai.localcluster", "--state-dir", str(state.path)]
    lists = (("--nodes", nodes), ("--isolated-nodes", isolated_nodes), ("--openings", openings))
    for flag, names in lists:
        if names:
            argv += [flag, ",".join(names)]
    if pod_env:
        argv += ["--pod-env", ",".join(f"{name}={value}" for name, value in pod_env.items())]
    log_file = _rotate_log(state)
    # Signals are blocked until `pid` is known: an earlier one would leave the cluster running.
    former = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        pid = _spawn(argv, log_file, former)
    except BaseException:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
        raise
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
        return _wait_until_ready(state, pid, log_file, timeout_s)
    except BaseException:  # also an interrupt, because no other process knows the pid yet
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        raise


def _wait_until_ready(
    state: StateDirectory, pid: int, log_file: Path, timeout_s: float
) -> ClusterProcess:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if (ready := running(state.path)) and ready.pid == pid:
            return ready
        if (status := _exit_status(pid)) is not None:
            raise StartFailed(f"the cluster ended before it was ready: {_why(log_file, status)}")
        time.sleep(_LOOK_EVERY_S)
    raise StartFailed(f"the cluster was not ready in {timeout_s:g} s: {_last_line(log_file)}")


def running(state_dir: Path) -> ClusterProcess | None:
    """The cluster that runs in `state_dir`; None if no cluster of this directory is ready."""
    record = StateDirectory(state_dir.absolute()).read_running()
    if record is None or start_ticks(record.pid) != record.start_ticks:
        return None
    return record


def stop(state_dir: Path, *, timeout_s: float = STOP_TIMEOUT_S) -> bool:
    """Stop the cluster that runs in `state_dir`, and wait until its process has ended.

    If the process has not ended after `timeout_s` seconds, kill the process.

    Returns: False if no cluster was running
    """
    record = StateDirectory(state_dir.absolute()).read_running()
    if record is None:
        return False
    try:
        pidfd = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return False
    try:
        if start_ticks(record.pid) != record.start_ticks:
            return False  # another process has the pid now
        end = select.poll()
        end.register(pidfd, select.POLLIN)
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(pidfd, number)
            if end.poll(timeout_s * 1000):
                break
    finally:
        os.close(pidfd)
    _exit_status(record.pid)
    return True


def _rotate_log(state: StateDirectory) -> Path:
    """Create an empty log file. The log file of the previous run gets the suffix `.1`."""
    path = state.path / LOG_FILE
    try:
        state.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.replace(path.with_name(LOG_FILE + ".1"))
        path.touch(mode=0o600)
    except OSError as error:
        raise StartFailed(f"state directory {state.path}: {error.strerror}") from error
    return path


def _spawn(argv: list[str], log_file: Path, blocked: Iterable[int]) -> int:
    """Returns: the pid. Args: blocked: the signals that the new process blocks"""
    output = (os.POSIX_SPAWN_OPEN, 1, str(log_file), os.O_WRONLY | os.O_APPEND, 0o600)
    return os.posix_spawn(
        argv[0],
        argv,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            output,
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=blocked,
    )


def _exit_status(pid: int) -> int | None:
    """The exit code of a child of this process, which is reaped; None while the process runs.

    Returns: -1 for a process that is gone and was no child of this process
    """
    try:
        child, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None if start_ticks(pid) is not None else -1
    return os.waitstatus_to_exitcode(status) if child else None


def _why(log_file: Path, status: int) -> str:
    """Why the cluster ended: the last line of its log; if the log is empty, the exit status."""
    if last := _last_line(log_file):
        return last
    full = shutil.disk_usage(log_file.parent).free < _FULL_BYTES
    hint = f"; the disk of {log_file.parent} is full" if full else ""
    return f"it logged nothing, and ended with status {status}{hint}"


def _last_line(log_file: Path) -> str:
    """The message of the log's last line; "" if the log is empty."""
    lines = log_file.read_text(encoding="utf-8", errors="replace").splitlines()
    last = next((line for line in reversed(lines) if line.strip()), "")
    try:
        entry = msgspec.json.decode(last)
        return f"{entry['event']}: {entry['error']}"
    except (msgspec.DecodeError, KeyError, TypeError):
        return last
