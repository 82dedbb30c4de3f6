"""A node that falls silent, on a control plane that watches its nodes."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import pytest

from common.times import rfc3339
from edgeai.api import Object
from tests.cluster import binaries
from tests.cluster.client import Client
from tests.cluster.conftest import SYSTEM_NAMESPACE, install_crds
from tests.cluster.controlplane import ControlPlane
from tests.cluster.manager import GlobalManager
from tests.cluster.training import REPLICAS, job_path, names, pytorch_job, wait_for_conditions
from tests.waiting import eventually

NODE: Final = "lost"
NAMESPACE: Final = "team"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"


@pytest.fixture
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("controlplane")
    plane = ControlPlane(binaries.obtain(), directory, watches_nodes=True)
    try:
        plane.start()
        install_crds(plane)
        for kind, name in (
            ("Namespace", SYSTEM_NAMESPACE),
            ("Namespace", NAMESPACE),
            ("Node", NODE),
        ):
            plane.client.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}})
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def manager(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GlobalManager]:
    manager = GlobalManager(
        kubeconfig=plane.kubeconfig,
        system_namespace=SYSTEM_NAMESPACE,
        directory=tmp_path_factory.mktemp("globalmanager"),
    )
    try:
        manager.start()
        yield manager
    finally:
        manager.stop()


def on_lost_node() -> Object:
    job = pytorch_job(NAMESPACE)
    for replicas in job["spec"]["pytorchReplicaSpecs"].values():
        replicas["template"]["spec"]["nodeName"] = NODE
    return job


def report_pods(client: Client) -> None:
    """As a kubelet whose pods run."""
    ready = [{"type": type_, "status": "True"} for type_ in ("ContainersReady", "Ready")]
    for name in REPLICAS:
        status = {"phase": "Running", "conditions": ready}
        client.patch(f"{PODS}/{name}/status", {"status": status})


def report_node(client: Client) -> None:
    """As a kubelet that is ready. Kubernetes calls the node lost some seconds after this report."""
    heard = {"type": "Ready", "status": "True", "lastHeartbeatTime": rfc3339(datetime.now(UTC))}
    client.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"conditions": [heard]}})


def test_a_lost_node_is_told_and_the_state_of_the_job_stays(
    plane: ControlPlane, manager: GlobalManager
) -> None:
    client = plane.client
    client.create(on_lost_node())
    eventually("all pods", lambda: names(client, NAMESPACE) == REPLICAS)
    report_pods(client)
    report_node(client)
    job = wait_for_conditions(client, job_path(NAMESPACE), "Stalled", "Created", "Running")
    stalled = job["status"]["conditions"][0]
    assert stalled["reason"] == "NodeNotReady"
    assert f"on node {NODE}" in stalled["message"]
    shown = plane.kubectl("get", "pytorchjob", "mnist", "--namespace", NAMESPACE).stdout
    assert shown.splitlines()[1].split()[1] == "Running"
    report_pods(client)
    wait_for_conditions(client, job_path(NAMESPACE), "Created", "Running")
