"""A release of the chart in a cluster of the tests, by Helm."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from globalmanager.manifests.rbac import groups
from tests.cluster import helm
from tests.cluster.controlplane import ControlPlane
from tests.cluster.helm import CHART, RELEASE
from tests.cluster.install.steps import NAMESPACE
from tests.support.waiting import eventually

DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_WAIT_S: Final = 100
_END_S: Final = 120.0


class Release:
    """Args: plane: of the cluster, on whose nodes pods become ready"""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def helm(
        self, *arguments: str, namespace: str = NAMESPACE
    ) -> "subprocess.CompletedProcess[str]":
        where = ("--kubeconfig", str(self._plane.kubeconfig), "--namespace", namespace)
        return helm.helm(*arguments, *where)

    def install(self, *flags: str, chart: Path = CHART) -> str:
        """What it printed: the notes of the chart."""
        flags = ("--create-namespace", "--wait", f"--timeout={_WAIT_S}s", *flags)
        return self._printed("install", RELEASE, str(chart), *flags)

    def upgrade(self, *flags: str, chart: Path = CHART) -> str:
        flags = ("--wait", f"--timeout={_WAIT_S}s", *flags)
        return self._printed("upgrade", RELEASE, str(chart), *flags)

    def rollback(self, revision: int) -> None:
        self._printed("rollback", RELEASE, str(revision), "--wait", f"--timeout={_WAIT_S}s")

    def uninstall(self) -> None:
        self._printed("uninstall", RELEASE, "--wait", f"--timeout={_WAIT_S}s")

    def listed(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self._printed("list", "--output=json"))
        return found

    def remove(self) -> None:
        """With the definitions, their jobs and the namespace."""
        self.helm("uninstall", RELEASE, "--ignore-not-found", "--wait", f"--timeout={_WAIT_S}s")
        flags = ("--ignore-not-found", "--wait=false")
        self._plane.kubectl("delete", "-f", str((CHART / "definitions").resolve()), *flags)
        self._plane.kubectl("delete", "namespace", NAMESPACE, *flags)

        def is_gone() -> bool:
            names = [each["metadata"]["name"] for each in self._plane.client.list(DEFINITIONS)]
            assert not any(name.endswith(groups()) for name in names), names
            return self._plane.client.find(f"/api/v1/namespaces/{NAMESPACE}") is None

        eventually("the end of all", is_gone, timeout_s=_END_S)

    def _printed(self, *arguments: str) -> str:
        done = self.helm(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout
