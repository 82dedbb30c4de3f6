"""Obtains Horovod with PyTorch: cached, or built once on a Debian 12, which takes ten minutes.

    python -m tests.elastic.horovod    # prints the path of the Python that has both

PyTorch is Debian's, because Horovod builds against Debian's libtorch without a change. Horovod is
in a virtual environment in the user's cache, beside the runtimes of edgeai.cli.runtimes.
"""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from edgeai.cli import debian, runtimes
from tests.cluster.binaries import Unavailable, locked, say

LOCK: Final = runtimes.REQUIREMENTS / "horovod.lock"
SYSTEM_PYTHON: Final = Path("/usr/bin/python3")
"""The Python of Debian, which Debian's PyTorch is for."""
_TORCH: Final = "1.13.1"
_PACKAGES: Final = (
    *("python3-torch", "libtorch-dev", "pybind11-dev", "python3-dev", "cmake", "g++", "make"),
    *("python3-venv", "python3-wheel", "python3-packaging"),
    *("python3-cffi", "python3-cloudpickle", "python3-psutil", "python3-yaml"),
    "openssh-server",  # the tests' workers
    "openssh-client",
)
_OPTIONS: Final = {
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "MAKEFLAGS": "-j2",
}
_COMPLETE: Final = "complete"  # a build without this file was interrupted
_PROGRESS: Final = re.compile(r"\[ *(\d+)%\]")
_PROGRESS_EVERY_S: Final = 60.0
_SHOWN_LINES: Final = 15


def obtain() -> Path:
    """A Python that has horovod.torch. The first call takes about ten minutes and 3 GB.

    Several processes may call this at the same time: one builds, the others wait.

    Raises: Unavailable
    """
    target = directory()
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_suffix(".lock")):
        if not (target / _COMPLETE).exists() or debian.missing(_PACKAGES):
            _build(target)
    return target / "bin" / "python"


def directory() -> Path:
    """The virtual environment. Another lock or another machine has another directory."""
    digest = hashlib.sha256(LOCK.read_bytes())
    digest.update(f"{platform.machine()} {_TORCH}".encode())
    return runtimes.runtime("horovod").cache / f"horovod-{digest.hexdigest()[:16]}"


def _build(target: Path) -> None:
    started_s = time.monotonic()
    _install_packages()
    if (target / _COMPLETE).exists():  # only packages were missing
        return
    shutil.rmtree(target, ignore_errors=True)  # left by an interrupted build
    say(f"building Horovod into {target}: about ten minutes, once")
    pip = [str(target / "bin" / "pip"), "install", "--disable-pip-version-check", "--no-deps"]
    locked_packages = ["--require-hashes", "--requirement", str(LOCK)]
    log = target.with_suffix(".log")
    try:
        _run([SYSTEM_PYTHON, "-m", "venv", "--system-site-packages", target], log)
        _run([*pip, "--no-build-isolation", "--verbose", *locked_packages], log)
        _run([target / "bin" / "python", "-c", "import horovod.torch"], log)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    (target / _COMPLETE).touch()
    say(f"Horovod is in {target} after {time.monotonic() - started_s:.0f} s")


def _install_packages() -> None:
    if not (names := debian.missing(_PACKAGES)):
        return
    say(f"installing {' '.join(names)}: minutes, once")
    try:
        debian.install(names)
    except debian.PackagesUnavailable as error:
        raise Unavailable(f"Horovod cannot be built: {error}") from error


# ---- common --------------------------------------------------------------------------------------


def _run(command: list[str | Path], log: Path) -> None:
    """Run a command, say now and then how far it is. Raises: Unavailable"""
    environment = {**os.environ, **_OPTIONS}
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        try:
            _follow(process, log)
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        said = "\n".join(log.read_text(errors="replace").splitlines()[-_SHOWN_LINES:])
        words = " ".join(str(word) for word in command[:4])
        raise Unavailable(
            f"Horovod cannot be built: `{words}` ended with {process.returncode}; {log}:\n{said}"
        )


def _follow(process: "subprocess.Popen[bytes]", log: Path) -> None:
    while True:
        try:
            process.wait(_PROGRESS_EVERY_S)
        except subprocess.TimeoutExpired:
            shares = _PROGRESS.findall(log.read_text(errors="replace"))
            say(f"… {shares[-1]} %" if shares else "…")
        else:
            return


if __name__ == "__main__":
    try:
        print(obtain())
    except Unavailable as unavailable:
        sys.exit(f"tests.elastic.horovod: {unavailable}")
