"""Helm, built from its Go module, against the chart."""

import functools
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from edgeai.cli.api import Object
from tests.cluster.binaries import GoModule, Unavailable, print_path

CHART: Final = Path(__file__).parents[2] / "deploy" / "chart"
RELEASE: Final = "edgeai"
_HELM: Final = GoModule(Path(__file__).parents[1] / "helm", "helm", "helm.sh/helm/v4")
_WAIT_S: Final = 150.0


def obtain() -> Path:
    """The program; the first build takes minutes. Raises: Unavailable"""
    version = {"helm.sh/helm/v4/internal/version.version": f"v{_HELM.release()}"}
    return _HELM._replace(variables=version).obtain() / "helm"


@functools.cache
def program() -> Path:
    """Skips the test where Helm cannot be built."""
    try:
        return obtain()
    except Unavailable as error:
        pytest.skip(str(error))


def helm(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(program()), *arguments],
        capture_output=True,
        text=True,
        timeout=_WAIT_S,
        check=False,
    )


def rendered(directory: Path, values: Object, namespace: str) -> list[Object]:
    """What the chart has with these values, without its tests.

    Args: directory: gets the file of the values
    """
    done = template(directory, values, namespace)
    assert done.returncode == 0, done.stderr
    return list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))


def template(directory: Path, values: Object, namespace: str) -> "subprocess.CompletedProcess[str]":
    file = directory / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    flags = ("--skip-tests", "--namespace", namespace, "--values", str(file))
    return helm("template", RELEASE, str(CHART), *flags)


if __name__ == "__main__":
    print_path(obtain)
