"""One real control plane for the whole run, a namespace of its own for each test."""

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster import binaries, decoder, helm, kueue
from tests.cluster.binaries import Unavailable
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kubelet import Kubelet
from tests.support.client import Client
from tests.support.cluster import Cluster, prepared
from tests.support.manager import SYSTEM_NAMESPACE, GlobalManager

CHECKOUT: Final = Path(__file__).parents[2]
NODES: Final = ("edge0", "edge1", "edge2", "cloud0", "solar-corona-cloud")


def pytest_collection_finish(session: pytest.Session) -> None:
    """A first build takes longer than a test may, so it is made before any test's clock runs."""
    if not session.items or session.config.option.collectonly:
        return
    try:
        binaries.obtain()
    except binaries.Unavailable as error:
        pytest.exit(str(error), returncode=pytest.ExitCode.USAGE_ERROR)
    for program in (decoder, helm, kueue):
        with contextlib.suppress(binaries.Unavailable):  # the tests that need it say so
            program.obtain()


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Started once, in a temporary directory."""
    control_plane = ControlPlane(binaries.obtain(), tmp_path_factory.mktemp("controlplane"))
    with control_plane.running():
        yield control_plane


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what Kubernetes and the GlobalManager said last."""
    report = yield
    if report.failed:
        for fixture in getattr(item, "funcargs", {}).values():
            if isinstance(fixture, ControlPlane | GlobalManager | Cluster):
                report.sections.append((type(fixture).__name__, fixture.logs()))
    return report


@pytest.fixture(scope="session")
def crds(control_plane: ControlPlane) -> ControlPlane:
    """The control plane with deploy/chart/definitions applied as a user would, and established."""
    control_plane.install_crds()
    return control_plane


@pytest.fixture(scope="session")
def client(crds: ControlPlane) -> Client:
    """Admin of the control plane that has the CRDs."""
    return crds.client


@pytest.fixture
def namespace(client: Client) -> Iterator[str]:
    """A fresh one, deleted afterwards; nothing can be made in it any more from then on."""
    metadata = {"generateName": "test-"}
    made = client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    name: str = made["metadata"]["name"]
    yield name
    client.delete(f"/api/v1/namespaces/{name}")
    # Nobody else confirms the end of pods here, and without that the namespace would never end.
    client.request("DELETE", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")


@pytest.fixture
def kubelet(client: Client, namespace: str) -> Iterator[None]:
    """One for the pods of `namespace`."""
    made = Kubelet(client, namespace)
    yield
    made.stop()


@pytest.fixture(scope="session")
def system_namespace(client: Client) -> str:
    client.create_named("Namespace", SYSTEM_NAMESPACE)
    return SYSTEM_NAMESPACE


@pytest.fixture(scope="session")
def nodes(client: Client) -> tuple[str, ...]:
    """Nodes that no kubelet serves: what is scheduled there stays pending."""
    client.create_named("Node", *NODES)
    return NODES


@pytest.fixture(scope="module")
def manager(
    crds: ControlPlane,
    system_namespace: str,
    nodes: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[GlobalManager]:
    """The GlobalManager as a process, ready."""
    manager = GlobalManager(
        kubeconfig=crds.kubeconfig,
        system_namespace=system_namespace,
        directory=tmp_path_factory.mktemp("globalmanager"),
    )
    with manager.running():
        yield manager


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A control plane with nodes that run containers."""
    try:
        cluster = prepared()
    except Unavailable as error:
        pytest.skip(str(error))
    with cluster.running():
        yield cluster
