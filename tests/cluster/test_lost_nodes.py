"""A node that falls silent, on a control plane that watches its nodes."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import pytest

from edgeai.cli.api import Object
from edgeai.times import rfc3339
from tests.cluster import binaries
from tests.cluster.controlplane import ControlPlane
from tests.cluster.samples import create_models, service
from tests.cluster.training import REPLICAS, job_path, names, pytorch_job, wait_for_conditions
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

NODE: Final = "lost"
HEARD: Final = "heard"
NAMESPACE: Final = "team"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"


@pytest.fixture
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("controlplane")
    plane = ControlPlane(binaries.obtain(), directory, watches_nodes=True)
    with plane.running():
        plane.prepare(NODE)
        plane.client.create_named("Namespace", NAMESPACE)
        yield plane


@pytest.fixture
def manager(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GlobalManager]:
    manager = GlobalManager(
        kubeconfig=plane.kubeconfig,
        directory=tmp_path_factory.mktemp("globalmanager"),
    )
    with manager.running():
        yield manager


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


def report_node(client: Client, node: str = NODE) -> None:
    """As a kubelet that is ready. Kubernetes calls the node lost some seconds after this report."""
    heard = {"type": "Ready", "status": "True", "lastHeartbeatTime": rfc3339(datetime.now(UTC))}
    client.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": [heard]}})


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


def evicted_after_s(client: Client) -> dict[str, float | None]:
    """Worker -> seconds that Kubernetes leaves its pod on a node that it does not reach, as
    admission has written them; None: for ever.
    """
    found = {
        pod["metadata"]["labels"]["edgeai.io/role"]: each.get("tolerationSeconds")
        for pod in client.list(PODS)
        for each in pod["spec"]["tolerations"]
        if each.get("key") == UNREACHABLE and each.get("effect") == "NoExecute"
    }
    assert found.keys() == {"edge", "cloud"}, f"pods of {found}"
    return found


def test_only_workers_of_the_cloud_are_evicted_from_a_lost_node(
    plane: ControlPlane, manager: GlobalManager
) -> None:
    """Kubernetes adds 300 s to the pods that say nothing themselves."""
    client = plane.client
    create_models(client, NAMESPACE)
    client.create(service(NAMESPACE, edge={"nodeName": NODE}, cloud={"nodeName": NODE}))
    after_s = eventually("both workers", lambda: evicted_after_s(client))
    assert after_s == {"edge": None, "cloud": 300}


def test_a_worker_of_the_edge_stays_on_a_lost_node_whose_others_are_evicted(
    plane: ControlPlane, manager: GlobalManager
) -> None:
    """With one second in the place of the cloud worker's 300. Another node is heard all the time,
    because Kubernetes evicts nobody while it hears no node at all.
    """
    client = plane.client
    client.create_named("Node", HEARD)
    report_node(client, HEARD)
    create_models(client, NAMESPACE)
    soon = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    cloud = service(NAMESPACE)["spec"]["cloudWorker"]
    cloud["template"]["spec"] |= {"nodeName": NODE, "tolerations": [soon]}
    client.create(service(NAMESPACE, edge={"nodeName": NODE}, cloud=cloud))
    eventually("both workers", lambda: evicted_after_s(client))
    pods = {pod["metadata"]["labels"]["edgeai.io/role"]: pod for pod in client.list(PODS)}
    report_node(client)

    def is_evicted() -> bool:
        report_node(client, HEARD)
        found = client.find(f"{PODS}/{pods['cloud']['metadata']['name']}")
        return found is None or "deletionTimestamp" in found["metadata"]

    eventually("the eviction of the cloud worker", is_evicted, timeout_s=120, poll_s=1)
    edge = client.get(f"{PODS}/{pods['edge']['metadata']['name']}")
    assert "deletionTimestamp" not in edge["metadata"]
    taints = client.get(f"/api/v1/nodes/{NODE}")["spec"]["taints"]
    assert UNREACHABLE in {taint["key"] for taint in taints if taint["effect"] == "NoExecute"}
