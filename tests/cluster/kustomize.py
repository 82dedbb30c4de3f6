"""Renders deploy/ as its administrators do, by the `kubectl kustomize` on the PATH.

The kubectl of Kubernetes 1.20, which the other tests here use, knows no components.
"""

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

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
_UNKNOWN: Final = 'unknown field "components"'


@functools.cache
def recent_kubectl() -> Path:
    """The kubectl on the PATH. Skips the test where there is none that knows components."""
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("there is no kubectl on the PATH, and deploy/ needs 1.21 or newer")
    if _UNKNOWN in _run(Path(found), DEPLOY / "overlays" / "serviceaccount").stderr:
        pytest.skip(f"{found} is older than 1.21, which deploy/ needs")
    return Path(found)


def rendered(directory: Path) -> list[Object]:
    done = _run(recent_kubectl(), directory)
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


def _run(kubectl: Path, directory: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(kubectl), "kustomize", str(directory)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
