"""One control plane with two nodes for the tests of releases."""

from collections.abc import Iterator

import pytest

from globalmanager.kinds.training.edge_placement import EDGE_LABEL
from tests.cluster import binaries
from tests.cluster.controlplane import ControlPlane
from tests.cluster.install.release import NAMESPACE
from tests.cluster.lone_node import LoneNode
from tests.support.client import Client


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("controlplane")
    plane = ControlPlane(binaries.obtain(), directory, watches_nodes=True)
    with plane.running():
        yield plane


@pytest.fixture(scope="package")
def client(plane: ControlPlane) -> Client:
    return plane.client


@pytest.fixture(scope="package")
def edge_node(client: Client) -> Iterator[LoneNode]:
    """An edge node, which has a session as soon as edgeai runs."""
    node = LoneNode(client, "edge0", NAMESPACE, {EDGE_LABEL: ""})
    yield node
    node.remove()


@pytest.fixture(scope="package")
def nodes(client: Client, edge_node: LoneNode) -> Iterator[None]:
    """A cloud node and the edge node, on which pods of edgeai become ready."""
    node = LoneNode(client, "cloud0", NAMESPACE, {})
    yield
    node.remove()
