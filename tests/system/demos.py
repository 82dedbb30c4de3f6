"""Runs a demo as a newcomer does, and looks for what it left."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.edgeai.cli.command import processes_of


class Demo(NamedTuple):
    """The finished command and the directory that was its HOME and TMPDIR."""

    process: subprocess.CompletedProcess[str]
    directory: Path

    @property
    def outcome(self) -> dict[str, Any]:
        """The last line."""
        told: dict[str, Any] = json.loads(self.process.stdout.splitlines()[-1])
        return told


def environ(directory: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "HOME": str(directory), "TMPDIR": str(directory)}


def command(name: str) -> list[str]:
    return [sys.executable, "-m", "edgeai", "demo", name]


def play(name: str, directory: Path, *flags: str, timeout_s: float = 110) -> Demo:
    """To its end."""
    process = subprocess.run(
        [*command(name), *flags],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=environ(directory),
        cwd=directory,
    )
    return Demo(process, directory)


def interrupt(name: str, directory: Path, *flags: str, after: str) -> None:
    """SIGTERM to the demo, once it has printed a line with `after`: it ends and leaves nothing."""
    with subprocess.Popen(
        [*command(name), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environ(directory),
        cwd=directory,
    ) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if after in line)
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(180) == 128 + signal.SIGTERM
    assert left_of(directory) == []


def left_of(directory: Path) -> list[str]:
    """Files in the directory, and processes whose arguments or environment name it."""
    return [*(entry.name for entry in directory.iterdir()), *processes_of(directory)]
