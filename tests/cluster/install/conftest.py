"""One control plane with two nodes for the tests of installations."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.cluster import binaries
from tests.cluster.client import Client
from tests.cluster.controlplane import ControlPlane
from tests.cluster.install.steps import EDGE_LABELS, NAMESPACE, NOBODY, Run
from tests.cluster.lone_node import LoneNode
from tests.edgeai.cli.command import edgeai


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    plane = ControlPlane(
        binaries.obtain(),
        tmp_path_factory.mktemp("controlplane"),
        users={NOBODY: ""},
        watches_nodes=True,
    )
    with plane.running():
        yield plane


@pytest.fixture(scope="package")
def client(plane: ControlPlane) -> Client:
    return plane.client


@pytest.fixture(scope="package")
def edge_node(client: Client) -> Iterator[LoneNode]:
    """An edge node, which has a session as soon as edgeai runs."""
    node = LoneNode(client, "edge0", NAMESPACE, EDGE_LABELS)
    yield node
    node.remove()


@pytest.fixture(scope="package")
def nodes(client: Client, edge_node: LoneNode) -> Iterator[None]:
    """A cloud node and the edge node, on which pods of edgeai become ready."""
    node = LoneNode(client, "cloud0", NAMESPACE, {})
    yield
    node.remove()


@pytest.fixture
def run(plane: ControlPlane, nodes: None) -> Iterator[Run]:
    """Runs the command. What the test has left is removed afterwards."""

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return edgeai(*arguments, "--kubeconfig", str(plane.kubeconfig), "--timeout", "40")

    yield run
    if plane.client.find(f"/api/v1/namespaces/{NAMESPACE}"):
        run("uninstall", "--jobs", "--crds")
        plane.kubectl("delete", "namespace", NAMESPACE, "--wait=true")
