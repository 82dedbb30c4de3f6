"""A release of the chart in a cluster of the tests, by Helm."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.cluster import helm
from tests.cluster.controlplane import ControlPlane
from tests.cluster.helm import CHART, RELEASE
from tests.support.waiting import eventually

NAMESPACE: Final = "edgeai-system"
CORE: Final = f"/api/v1/namespaces/{NAMESPACE}"
DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/globalmanager"
SERVER_SIDE: Final = ("--server-side", "--force-conflicts", "--field-manager=edgeai-install")
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
        """With the namespace and the jobs. Definitions stay: the API server takes minutes for them
        on a busy machine.
        """
        self.helm("uninstall", RELEASE, "--ignore-not-found", "--wait", f"--timeout={_WAIT_S}s")
        flags = ("--ignore-not-found", "--wait=false")
        kinds = "models.edgeai.io,jointinferenceservices.edgeai.io"
        self._plane.kubectl("delete", kinds, "--all", "--wait=false")
        self._plane.kubectl("delete", "namespace", NAMESPACE, *flags)
        find = self._plane.client.find
        eventually("the end of the namespace", lambda: find(CORE) is None, timeout_s=_END_S)

    def disown_definitions(self) -> None:
        """As if another tool had applied them all."""
        done = self._plane.kubectl("apply", *SERVER_SIDE, "-f", str(CHART / "definitions"))
        assert done.returncode == 0, done.stderr
        owner = ("meta.helm.sh/release-name-", "meta.helm.sh/release-namespace-")
        done = self._plane.kubectl("annotate", "crd", "--all", *owner)
        assert done.returncode == 0, done.stderr

    def _printed(self, *arguments: str) -> str:
        done = self.helm(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout
