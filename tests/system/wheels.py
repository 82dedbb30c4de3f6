"""Installs edgeai's wheel into a Python that has what an extra names, and nothing of the checkout.

The libraries are links to those of this environment, so no test needs a package index.
"""

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT: Final = Path(__file__).parents[2]
_OF_THE_PYTHON: Final = {"..", "__pycache__"}
"""No distribution has these for itself."""


def build(directory: Path) -> Path:
    """Returns: the wheel of the checkout"""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, timeout=60)
    (wheel,) = directory.glob("*.whl")
    return wheel


class WheelVenv:
    """`pip install 'edgeai[EXTRAS]'` into a new virtual environment.

    Args:
        directory: empty, outside the checkout; its `home` is the programs' HOME, TMPDIR and
            working directory
    """

    def __init__(self, wheel: Path, directory: Path, *extras: str) -> None:
        self.directory, self.home = directory, directory / "home"
        self.home.mkdir(parents=True)
        venv.create(directory / "venv", with_pip=False, symlinks=True)
        self._bin = directory / "venv" / "bin"
        (site,) = (directory / "venv").glob("lib/python3*/site-packages")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        install = ["install", "--no-deps", "--no-index", "--no-compile", str(wheel)]
        subprocess.run(
            [*pip, "--python", str(self._bin / "python"), *install], check=True, timeout=60
        )
        (own,) = metadata.distributions(name="edgeai", path=[str(site)])
        for distribution in _closure(own, frozenset(extras)):
            for name in {file.parts[0] for file in distribution.files or ()} - _OF_THE_PYTHON:
                if not (site / name).is_symlink():
                    (site / name).symlink_to(Path(str(distribution.locate_file(name))))

    def run(self, *command: str, timeout_s: float = 110) -> subprocess.CompletedProcess[str]:
        """Run a program of the installation, as a newcomer does in their home directory."""
        return subprocess.run(
            [str(self._bin / command[0]), *command[1:]],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            cwd=self.home,
            env={
                "PATH": f"{self._bin}{os.pathsep}/usr/bin{os.pathsep}/bin",
                "HOME": str(self.home),
                "TMPDIR": str(self.home),
            },
        )


def _closure(own: metadata.Distribution, extras: frozenset[str]) -> Iterator[metadata.Distribution]:
    """What a package index would install with the wheel: all that it requires, each once."""
    done = {("edgeai", extra) for extra in ("", *extras)}
    waiting = [(own, extra) for _, extra in sorted(done)]
    while waiting:
        distribution, extra = waiting.pop()
        for text in distribution.requires or ():
            requirement = Requirement(text)
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            name = canonicalize_name(requirement.name)
            required = own if name == "edgeai" else metadata.distribution(name)
            for needed in {(name, ""), *((name, each) for each in requirement.extras)} - done:
                done.add(needed)
                waiting.append((required, needed[1]))
                if name != "edgeai":
                    yield required
