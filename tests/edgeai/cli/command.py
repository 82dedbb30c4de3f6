"""Runs the `edgeai` command, and finds what it may have left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.waiting import eventually

CHECKOUT: Final = Path(__file__).parents[3]
DEADLINE_S: Final = 100.0


def start(
    *arguments: str, cwd: Path | None = None, tmp: Path | None = None
) -> subprocess.Popen[str]:
    """Args: tmp: its TMPDIR"""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    if tmp is not None:
        environment["TMPDIR"] = str(tmp)
    return subprocess.Popen(
        [sys.executable, "-m", "edgeai", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment,
        # A shell's background job ignores Ctrl-C, and so would what it starts.
        preexec_fn=heed_interrupts,
    )


class Ended(Exception):
    """The command has ended though it should not have."""


def wait_for(what: str, is_so: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """While the command runs. Raises: Ended with what the command has said"""

    def check() -> object:
        if process.poll() is not None:
            raise Ended(process.communicate())
        return is_so()

    eventually(what, check, poll_s=0.01)


def heed_interrupts() -> None:
    """For a program that a test starts and interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def edgeai(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    process = start(*arguments, cwd=cwd)
    stdout, stderr = process.communicate(timeout=DEADLINE_S)
    return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)


def processes_of(directory: Path) -> list[str]:
    """Command lines of processes whose arguments or environment name `directory`."""
    wanted, mine = str(directory.resolve()).encode(), str(os.getpid())
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and entry.name != mine:
            cmdline = _read(entry / "cmdline")
            if wanted in cmdline or wanted in _read(entry / "environ"):
                found.append(cmdline.replace(b"\0", b" ").decode(errors="replace"))
    return found


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""  # it ended meanwhile, or is somebody else's
