"""Helm, built from its Go module, against the chart.

python -m tests.cluster.helm FILE      # renders the chart for kubectl
"""

import functools
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml

from edgeai.cli.api import Object
from globalmanager.manifests.rbac import NAMESPACE
from tests.cluster.binaries import GoModule, Unavailable, print_path

CHART: Final = Path(__file__).parents[2] / "deploy" / "chart"
RELEASE: Final = "edgeai"
_HELM: Final = GoModule(Path(__file__).parents[1] / "helm", "helm", "helm.sh/helm/v4")
_HEADER: Final = f"""\
# Rendered from deploy/chart by `make crds`; do not edit. Needs the Secret and the ConfigMap of:
#   edgeai credentials
# Then: kubectl apply --server-side -f deploy/edgeai.yaml
---
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
"""
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


def helm(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(program()), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=_WAIT_S,
        check=False,
    )


def for_kubectl() -> str:
    """The chart with its defaults, for `kubectl apply --server-side -f`."""
    done = template()
    assert done.returncode == 0, done.stderr
    return f"{_HEADER}{done.stdout}"


def rendered(values: Object | None = None, namespace: str = NAMESPACE) -> list[Object]:
    """What the chart has with these values, without its tests."""
    done = template(values, namespace)
    assert done.returncode == 0, done.stderr
    return list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))


def template(
    values: Object | None = None, namespace: str = NAMESPACE
) -> "subprocess.CompletedProcess[str]":
    flags = ("--skip-tests", "--namespace", namespace, "--values", "-")
    return helm("template", RELEASE, str(CHART), *flags, stdin=yaml.safe_dump(values or {}))


if __name__ == "__main__":
    print_path(obtain)
    for name in sys.argv[1:]:
        Path(name).write_text(for_kubectl(), encoding="utf-8")
