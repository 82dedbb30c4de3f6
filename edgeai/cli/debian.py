"""Installs packages of Debian, which takes root."""

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import Final

from edgeai.errors import Unavailable

_LOCK_S: Final = 600
_APT: Final = ("apt-get", "-qq", "-o", f"DPkg::Lock::Timeout={_LOCK_S}")
_INSTALL: Final = ("install", "--yes", "--no-install-recommends")
_LOCKED: Final = "Could not get lock"
_RETRY_S: Final = 1.0
_TAIL_LINES: Final = 8


class PackagesUnavailable(Unavailable):
    """The packages cannot be installed here. The text says why and what to do."""


def missing(packages: Sequence[str]) -> list[str]:
    """Those of `packages` that are not installed; all of them where there is no dpkg."""
    if not shutil.which("dpkg-query"):
        return list(packages)
    form = "${binary:Package} ${db:Status-Status}\n"
    query = subprocess.run(
        ["dpkg-query", "--show", f"--showformat={form}", *packages],
        capture_output=True,
        text=True,
        check=False,  # 1 if one of the packages is not known
    )
    lines = (line.split() for line in query.stdout.splitlines())
    installed = {name.split(":")[0] for name, status in lines if status == "installed"}
    return [name for name in packages if name not in installed]


def install(packages: Sequence[str]) -> None:
    """Install those of `packages` that are missing; waits while another apt-get installs.

    Raises: PackagesUnavailable
    """
    names = missing(packages)
    if not names:
        return
    for command in ([*_APT, "update"], [*_APT, *_INSTALL, *names]):
        try:
            process = _run(command)
        except OSError as error:
            raise _unavailable(names, str(error)) from error
        if process.returncode:
            raise _unavailable(names, process.stderr)


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Again while another has a lock: no option lets `update` wait for the lock of the lists."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    deadline = time.monotonic() + _LOCK_S
    while True:
        process = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False
        )
        if _LOCKED not in process.stderr or time.monotonic() > deadline:
            return process
        time.sleep(_RETRY_S)


def _unavailable(names: Sequence[str], output: str) -> PackagesUnavailable:
    return PackagesUnavailable(
        f"Debian's packages {' '.join(names)} are missing: install them, or run as root on a"
        f" Debian 12; apt-get says:\n{tail(output)}"
    )


def tail(output: str) -> str:
    """The last lines of the output of a program."""
    return "\n".join(output.strip().splitlines()[-_TAIL_LINES:])
