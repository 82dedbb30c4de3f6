"""Renders deploy/ as its administrators do, by `kubectl kustomize`."""

import functools
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest
import yaml

from edgeai.cli.api import Object
from tests.cluster.binaries import cache_directory

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
_NEEDED: Final = "components"  # which a kubectl before 1.21 does not read


@functools.cache
def kubectl() -> Path:
    """The one that was built for the tests here, else the one on the PATH. Skips the test where
    neither is new enough.
    """
    built = cache_directory() / "kubectl"
    program = str(built) if built.exists() else shutil.which("kubectl")
    if program is None:
        pytest.skip("there is no kubectl, and deploy/ needs 1.21 or newer")
    if f'unknown field "{_NEEDED}"' in _run(Path(program), DEPLOY / "overlays" / "mtls").stderr:
        pytest.skip(f"{program} is older than 1.21, which deploy/ needs")
    return Path(program)


def rendered(directory: Path) -> list[Object]:
    done = _run(kubectl(), directory)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def combined(directory: Path, components: Iterable[str]) -> list[Object]:
    """The base with components. Args: directory: empty"""
    write(directory, resources=[DEPLOY / "base"], components=[*map(component, components)])
    return rendered(directory)


def component(name: str) -> Path:
    return DEPLOY / "components" / name


def write(directory: Path, **fields: Iterable[Path | str]) -> None:
    """A kustomization; its paths are relative, as kustomize wants them."""
    lists = {
        field: [os.path.relpath(each, directory) if isinstance(each, Path) else each for each in v]
        for field, v in fields.items()
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(lists))


def _run(program: Path, directory: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(program), "kustomize", str(directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
