"""Installs runtimes: what the programs of users need and edgeai does not, like PyTorch.

    python -m edgeai.cli.runtimes pytorch tensorflow

Each runtime has a lock in requirements/ and a directory in the user's cache: a virtual environment
with what the lock names. PyTorch comes from the first of these that has it: a Python of the
machine, the package index, Debian (docs/decisions/0006-dependencies.md). The first call of
`install` takes minutes and up to 2 GB; once more, or for the same lock elsewhere, no time.
"""

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from edgeai.cli import debian
from edgeai.errors import Unavailable

_PACKAGE: Final = Path(__file__).parents[1]
_PLACES: Final = (_PACKAGE.parent / "requirements", _PACKAGE / "requirements")
REQUIREMENTS: Final = next(
    (path for path in _PLACES if (path / "pytorch.lock").is_file()), _PLACES[0]
)
"""The locks of the checkout. The wheel holds those of the demos."""
_COMPLETE: Final = "complete"
"""Lists the files that the runtime needs outside. Without it an installation was interrupted."""
_PROBE_S: Final = 60.0
_BUILD_ENVIRONMENT: Final = {"horovod-driver": {"HOROVOD_SKIP_COMPILE": "1"}}
"""Name of a runtime -> variables for the build of its packages."""


class RuntimeUnavailable(Unavailable):
    """The runtime cannot be installed here. The text says why and what to do."""


class Library(msgspec.Struct, frozen=True):
    """A library that may come from elsewhere than the lock."""

    code: str
    """Imports the library, ends with an error where it lacks something, and prints its files."""
    packages: tuple[str, ...]
    """Of Debian, which bring it to Debian's Python."""


LIBRARIES: Final = {
    "pytorch": Library(
        "import numpy, torch, torch.distributed as d\n"
        "assert d.is_gloo_available()\n"
        "print(numpy.__file__, torch.__file__, sep='\\n')",
        ("python3-torch", "python3-numpy"),
    )
}
"""Name of a runtime -> its library."""


class Runtime(msgspec.Struct, frozen=True):
    lock: Path
    """File with all packages of the runtime and their hashes."""
    cache: Path
    """Directory of all runtimes."""
    library: Library | None = None
    """None where all comes from the lock."""

    @property
    def name(self) -> str:
        return self.lock.stem

    @property
    def directory(self) -> Path:
        """Another lock or another Python has another directory."""
        digest = hashlib.sha256(self.lock.read_bytes())
        digest.update(f"{sys.version} {platform.machine()} {sys.base_prefix}".encode())
        return self.cache / f"{self.name}-{digest.hexdigest()[:16]}"

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    def is_installed(self) -> bool:
        if not self.lock.exists() or not (self.directory / _COMPLETE).exists():
            return False
        files = (self.directory / _COMPLETE).read_text().splitlines()
        return all(Path(file).exists() for file in files)

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
        if self._take_from_machine():
            return
        pip = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check"]
        try:
            with self._complete() as files:
                self._run([sys.executable, "-m", "venv", str(self.directory)])
                self._run([*pip, "--require-hashes", "--requirement", str(self.lock)])
                files.touch()
        except RuntimeUnavailable as refusal:
            if self.library is None:
                raise
            self._take_from_debian(self.library, refusal)

    def _take_from_machine(self) -> bool:
        """Let `python` be the machine's first with the library. Returns: whether one has it"""
        if self.library is None:
            return False
        for candidate in _machine_pythons():
            if files := _files(candidate, self.library):
                with self._complete() as complete:
                    self.python.parent.mkdir(parents=True)
                    self.python.write_text(f'#!/bin/sh\nexec {shlex.quote(candidate)} "$@"\n')
                    self.python.chmod(0o755)
                    complete.write_text("\n".join([candidate, *files]))
                return True
        return False

    def _take_from_debian(self, library: Library, refusal: RuntimeUnavailable) -> None:
        """Args: refusal: of the package index"""
        problem = f"after apt-get has installed {' '.join(library.packages)}, no Python has it"
        try:
            debian.install(library.packages)
        except debian.PackagesUnavailable as error:
            problem = str(error)
        else:
            if self._take_from_machine():
                return
        raise RuntimeUnavailable(
            f"{refusal}\n{problem}\nOr install {self.name} into a Python on the PATH, or let"
            " PIP_EXTRA_INDEX_URL name an index that has its CPU build."
        ) from refusal

    @contextmanager
    def _complete(self) -> Iterator[Path]:
        """Gives the file that completes the directory, which an error in the block deletes."""
        shutil.rmtree(self.directory, ignore_errors=True)  # from an interrupted installation
        try:
            yield self.directory / _COMPLETE
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise

    def _run(self, command: list[str]) -> None:
        process = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={**os.environ, **_BUILD_ENVIRONMENT.get(self.name, {})},
        )
        if process.returncode:
            raise RuntimeUnavailable(
                f"{self.name} cannot be installed: `{' '.join(command[1:4])}` of {self.lock} ended"
                f" with {process.returncode}:\n{debian.tail(process.stdout)}"
            )


def runtime(name: str) -> Runtime:
    """The runtime of requirements/<name>.lock, in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(home) / "edgeai" / "runtimes"
    return Runtime(REQUIREMENTS / f"{name}.lock", cache, LIBRARIES.get(name))


def _machine_pythons() -> list[str]:
    """This Python, and each python3 on the PATH, in its order."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    pythons = (shutil.which("python3", path=folder) for folder in folders if folder)
    return list(dict.fromkeys([sys.executable, *filter(None, pythons)]))


def _files(python: str, library: Library) -> list[str]:
    """The files of the library in a Python. Empty: it has no such library, or does not run"""
    try:
        process = subprocess.run(
            [python, "-c", library.code],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return process.stdout.splitlines() if process.returncode == 0 else []


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
        target = runtime(name)
        if not target.is_installed():
            print(f"Installing {name} into {target.cache}; this takes minutes …", flush=True)
        try:
            print(f"{name}: {target.install()}", flush=True)
        except RuntimeUnavailable as error:
            print(error, file=sys.stderr, flush=True)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
