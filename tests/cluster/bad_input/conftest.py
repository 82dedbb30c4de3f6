"""One control plane for all of this folder, and GlobalManagers that are started on it."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster import binaries
from tests.cluster.bad_input.unready import USER, Launch, UnreadyManager
from tests.cluster.controlplane import ControlPlane
from tests.support.manager import SYSTEM_NAMESPACE


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, without controllers, nodes' kubelets or CRDs."""
    plane = ControlPlane(
        binaries.obtain(), tmp_path_factory.mktemp("controlplane"), users={USER: ""}
    )
    with plane.running(with_controllers=False):
        plane.client.create_named("Namespace", SYSTEM_NAMESPACE)
        plane.client.create_named("Node", "edge0")
        yield plane


@pytest.fixture
def launch(plane: ControlPlane, tmp_path: Path) -> Iterator[Launch]:
    """Starts GlobalManagers; each must still be there at the end, and is stopped then."""
    with ExitStack() as stack:

        def start(kubeconfig: Path, *flags: str) -> UnreadyManager:
            manager = UnreadyManager(kubeconfig, tmp_path, flags)
            stack.callback(manager.stop)
            return manager

        yield start


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    """A fresh one; it lasts as long as the control plane."""
    metadata = {"generateName": "test-"}
    made = plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    name: str = made["metadata"]["name"]
    return name
