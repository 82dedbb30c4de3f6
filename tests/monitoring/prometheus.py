"""Obtains Debian's Prometheus with promtool, and runs both for tests.

    python -m tests.monitoring.prometheus    downloads the package once, and unpacks it

It is unpacked below the cache and not installed, so it needs no root and starts no service. Tests
that need it are skipped where it is missing, and say how to get it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.binaries import locked

CACHE: Final = Path("~/.cache/edgeai/prometheus").expanduser()
_DOWNLOAD_S: Final = 300.0
_CHECK_S: Final = 60.0


class Unavailable(Exception):
    """Prometheus cannot be obtained on this machine."""


def program(name: str) -> str | None:
    """The path of `prometheus` or `promtool`: of the machine, else of the cache."""
    return shutil.which(name) or shutil.which(name, path=str(CACHE / "usr" / "bin"))


def needed(name: str) -> str:
    """The path of the program; the test is skipped where there is none."""
    found = program(name)
    if found is None:
        pytest.skip(f"no {name}: run `python -m tests.monitoring.prometheus` on a Debian 12")
    return found


def promtool(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool, and return how it ended."""
    return subprocess.run(
        [needed("promtool"), *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_CHECK_S,
        check=False,
    )


def obtain() -> None:
    """Raises: Unavailable"""
    if program("prometheus") and program("promtool"):
        return
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise Unavailable("put prometheus and promtool on the PATH, or use a Debian 12")
    CACHE.mkdir(parents=True, exist_ok=True)
    with locked(CACHE.with_suffix(".lock")):
        if not (program("prometheus") and program("promtool")):  # nobody has unpacked it meanwhile
            _unpack()


def _unpack() -> None:
    if os.geteuid() == 0:
        _run("apt-get", "update", "-qq")
    _run("apt-get", "download", "-qq", "prometheus")
    for package in CACHE.glob("prometheus_*.deb"):
        _run("dpkg-deb", "-x", package.name, ".")
        package.unlink()


def _run(*command: str) -> None:
    done = subprocess.run(
        command, cwd=CACHE, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False
    )
    if done.returncode:
        raise Unavailable(f"`{' '.join(command)}` failed: {done.stderr.strip()[-1000:]}")


if __name__ == "__main__":
    try:
        obtain()
    except Unavailable as problem:
        sys.exit(f"tests with Prometheus will be skipped: {problem}")
