"""Installs runtimes: what the programs of users need and edgeai does not, like PyTorch.

    python -m edgeai.runtimes pytorch tensorflow

Each runtime has a lock in requirements/ and a virtual environment in the user's cache. The tests
call `install`. The first call takes minutes and up to 2 GB. A later call returns at once, also in
another checkout with the same lock.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from common.errors import Unavailable

REQUIREMENTS: Final = Path(__file__).parents[1] / "requirements"
_COMPLETE: Final = "complete"  # an installation without this file was interrupted
_SHOWN_LINES: Final = 8
_BUILD_ENVIRONMENT: Final = {"horovod-driver": {"HOROVOD_SKIP_COMPILE": "1"}}
"""Name of a runtime -> variables for the build of its packages."""


class RuntimeUnavailable(Unavailable):
    """The runtime cannot be installed here. The text says why and what to do."""


class Runtime(msgspec.Struct, frozen=True):
    """A runtime and its place in the cache.

    Args:
        lock: file with all packages of the runtime and their hashes
        cache: directory of all runtimes
    """

    lock: Path
    cache: Path

    @property
    def name(self) -> str:
        return self.lock.stem

    @property
    def directory(self) -> Path:
        """The virtual environment. Another lock or another Python has another directory."""
        digest = hashlib.sha256(self.lock.read_bytes())
        digest.update(f"{sys.version} {platform.machine()} {sys.base_prefix}".encode())
        return self.cache / f"{self.name}-{digest.hexdigest()[:16]}"

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    def is_installed(self) -> bool:
        return self.lock.exists() and (self.directory / _COMPLETE).exists()

    def install(self) -> Path:
        """Install the runtime, unless it is installed. Returns: path of its Python

        Several processes may call this at the same time: one installs, the others wait.

        Raises: RuntimeUnavailable
        """
        if not self.lock.exists():
            raise RuntimeUnavailable(
                f"{self.name} has no lock {self.lock}: run this in a checkout of edgeai"
            )
        try:
            with _locked(self.directory.with_suffix(".lock")):
                if not self.is_installed():
                    self._make()
        except OSError as error:
            raise RuntimeUnavailable(
                f"{self.name} cannot be installed in {self.directory}: {error}; set XDG_CACHE_HOME"
                " to a directory with 2 GB of free space"
            ) from error
        return self.python

    def _make(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)  # left by an interrupted installation
        pip = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check"]
        try:
            self._run([sys.executable, "-m", "venv", str(self.directory)])
            self._run([*pip, "--require-hashes", "--requirement", str(self.lock)])
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        (self.directory / _COMPLETE).touch()

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={**os.environ, **_BUILD_ENVIRONMENT.get(self.name, {})},
        )
        if done.returncode:
            said = "\n".join(done.stdout.strip().splitlines()[-_SHOWN_LINES:])
            raise RuntimeUnavailable(
                f"{self.name} cannot be installed: `{' '.join(command[1:4])}` of {self.lock} ended"
                f" with {done.returncode}:\n{said}"
            )


def runtime(name: str) -> Runtime:
    """The virtual environment, in the user's cache, of the packages in requirements/<name>.lock."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Runtime(REQUIREMENTS / f"{name}.lock", Path(home) / "edgeai" / "runtimes")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other process has the lock of this file. Raises: OSError"""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield  # the end of the process unlocks the file, too


def main(names: list[str]) -> int:
    """Install runtimes. Returns: 1 if one of them cannot be installed"""
    status = 0
    for name in names:
        wanted = runtime(name)
        if not wanted.is_installed():
            print(f"Installing {name} into {wanted.cache}; this takes minutes …", flush=True)
        try:
            print(f"{name}: {wanted.install()}", flush=True)
        except RuntimeUnavailable as error:
            print(error, file=sys.stderr, flush=True)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
