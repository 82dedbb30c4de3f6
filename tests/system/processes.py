"""Finds and kills the processes of one local cluster's containers."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgeai.cli.environment import Environment
from tests.support.waiting import eventually


def pids_of(running: Environment, *argv: str) -> list[int]:
    """Processes of this cluster's pods whose command line has all of `argv`."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return [pid for pid in pids if _is_container(pid, running, argv)]


def kill(running: Environment, *argv: str) -> int:
    """SIGKILL exactly one container. Returns: its pid"""
    (pid,) = pids_of(running, *argv)
    os.kill(pid, signal.SIGKILL)
    return pid


@contextmanager
def stopped(running: Environment, *argv: str) -> Iterator[None]:
    """SIGSTOP exactly one container for as long as this lasts."""
    (pid,) = pids_of(running, *argv)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def wait_for_successor(running: Environment, killed: int, *argv: str) -> None:
    def check() -> bool:
        assert set(pids_of(running, *argv)) - {killed}, f"no other {argv} runs"
        return True

    eventually(f"restart of {argv}", check)


def _is_container(pid: int, running: Environment, argv: tuple[str, ...]) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        cmdline = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False  # it ended, or is not ours
    home = f"HOME={running.state_dir}/pods/".encode()
    is_ours = any(variable.startswith(home) for variable in environ)
    return is_ours and all(word.encode() in cmdline for word in argv)
