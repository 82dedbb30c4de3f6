"""The two clusters that the suite runs on, with one interface."""

import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import pytest
import yaml

from edgeai.localcluster import process
from edgeai.localcluster.state import ClusterProcess
from tests.cluster import binaries
from tests.cluster.controlplane import ControlPlane
from tests.support.client import Client
from tests.support.waiting import PATIENCE_S

LOCAL_MINOR_VERSION: Final = 32


def is_real(config: pytest.Config) -> bool:
    """Whether the tests of both clusters run on a real control plane."""
    return bool(config.getoption("--cluster") == "real")


def obtain_programs(session: pytest.Session) -> None:
    """A first build takes longer than a test may, so it is made before any test's clock runs."""
    if is_real(session.config) and session.items and not session.config.option.collectonly:
        try:
            binaries.obtain()
        except binaries.Unavailable as error:
            pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)


class AnyCluster(Protocol):
    """What the tests know of a cluster, besides its API."""

    name: str
    client: Client
    minor_version: int
    """Of Kubernetes 1.x."""
    has_kubelet: bool
    """Whether a kubelet runs the containers of pods."""
    has_service_accounts: bool
    """A namespace is ready for pods when its default ServiceAccount is there."""
    kubeconfig: Path

    def kubectl(self, *arguments: str, text: str = "") -> "subprocess.CompletedProcess[str] | None":
        """Run kubectl, `text` on its stdin; None: there is none for this cluster."""


class _Kubectl:
    def __init__(self, program: str | None, kubeconfig: Path, home: Path) -> None:
        self._program, self.kubeconfig, self._home = program, kubeconfig, home

    def kubectl(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str] | None:
        if self._program is None:
            return None
        flags = ("--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self._home / "cache"))
        return subprocess.run(
            [self._program, *flags, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env={"HOME": str(self._home), "PATH": "/usr/bin:/bin"},
        )


class LocalCluster(_Kubectl):
    """A process of its own, with one edge node."""

    name = "local"
    has_kubelet = True
    has_service_accounts = False
    minor_version = LOCAL_MINOR_VERSION

    def __init__(self, running: ClusterProcess, home: Path) -> None:
        super().__init__(shutil.which("kubectl"), running.kubeconfig, home)
        config = yaml.safe_load(running.kubeconfig.read_text())
        token = config["users"][0]["user"]["token"]
        self.client = Client(running.api, token=token, deadline_s=PATIENCE_S)


class RealCluster(_Kubectl):
    """A genuine control plane, without nodes."""

    name = "real"
    has_kubelet = False
    has_service_accounts = True

    def __init__(self, control_plane: ControlPlane, programs: Path, home: Path) -> None:
        super().__init__(str(programs / "kubectl"), control_plane.kubeconfig, home)
        context = ssl.create_default_context(cafile=control_plane.ca)
        url, token = control_plane.url, control_plane.token
        self.client = Client(url, token=token, context=context, deadline_s=PATIENCE_S)
        self.minor_version = _minor_version(programs / "kube-apiserver")


def _minor_version(api_server: Path) -> int:
    said = subprocess.run([api_server, "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"v1\.(\d+)", said.stdout)
    assert version is not None, f"kube-apiserver --version says {said.stdout!r}"
    return int(version[1])


@contextmanager
def local_cluster(directory: Path) -> Iterator[AnyCluster]:
    """The second start of its state, so that resource versions before it are too old."""
    state = directory / "state"
    process.start(state, nodes=["edge0"])
    process.stop(state)
    running = process.start(state, nodes=["edge0"])
    try:
        yield LocalCluster(running, directory)
    finally:
        process.stop(state)


@contextmanager
def real_cluster(directory: Path) -> Iterator[AnyCluster]:
    programs = binaries.obtain()
    control_plane = ControlPlane(programs, directory)
    with control_plane.running():
        yield RealCluster(control_plane, programs, directory)
