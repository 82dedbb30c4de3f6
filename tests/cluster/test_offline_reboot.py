"""An edge node that boots without the cloud: its workers start, count, and deliver later exactly.

The API server with its ServiceAccount admission makes the pods, and the LocalController is a
process with its ledger. The node is imitated: after the reboot it starts the containers of its pods
again, but of no pod with a token, because edgecore deletes tokens when it starts offline.
"""

import base64
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from tests.cluster.controlplane import ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.samples import create_models, service
from tests.cluster.test_federated_learning import dataset
from tests.globalmanager.kinds.edge.samples import federated_learning_spec
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

NODE: Final = "edge0"
SERVICE_WORKER: Final = "digits-edge"
TRAINER: Final = "learns-train-0"
_TOKEN_DIRECTORY: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_KINDS: Final = {
    SERVICE_WORKER: "jointinferenceservices/digits",
    TRAINER: "federatedlearningjobs/learns",
}


class Workers:
    """The pods of the two jobs on the edge node."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    def pods(self) -> dict[str, Object]:
        """Worker -> pod, of the pods on the edge node."""
        pods = self._client.list(f"/api/v1/namespaces/{self._namespace}/pods")
        return {
            pod["metadata"]["labels"]["edgeai.io/worker"]: pod
            for pod in pods
            if pod["spec"].get("nodeName") == NODE
        }

    def secret(self, pod: Object) -> str:
        """What the worker finds in WORKER_SECRET."""
        (container,) = pod["spec"]["containers"]
        (source,) = (v["valueFrom"] for v in container["env"] if v["name"] == "WORKER_SECRET")
        path = f"/api/v1/namespaces/{self._namespace}/secrets/{source['secretKeyRef']['name']}"
        data = self._client.get(path)["data"]
        return base64.b64decode(data[source["secretKeyRef"]["key"]]).decode()

    def seen(self, worker: str) -> Any:
        path = f"/apis/edgeai.io/v1alpha1/namespaces/{self._namespace}/{_KINDS[worker]}"
        workers = self._client.get(path).get("status", {}).get("workers", {})
        return workers.get(worker, {}).get("taskInfo", {}).get("seen")

    def wait_for(self, worker: str, seen: int) -> None:
        eventually(f"{seen} samples of {worker}", lambda: self.seen(worker) == seen)


def starts_offline(pod: Object) -> bool:
    """Whether edgecore starts the pod's containers after a boot without the cloud."""
    mounts = (m for each in pod["spec"]["containers"] for m in each.get("volumeMounts", ()))
    return all(mount["mountPath"] != _TOKEN_DIRECTORY for mount in mounts)


@pytest.fixture
def manager(
    crds: ControlPlane, system_namespace: str, nodes: tuple[str, ...], tmp_path: Path
) -> Iterator[GlobalManager]:
    manager = GlobalManager(
        kubeconfig=crds.kubeconfig,
        system_namespace=system_namespace,
        directory=tmp_path / "globalmanager",
    )
    with manager.running():
        yield manager


@pytest.fixture
def edge(manager: GlobalManager, tmp_path: Path) -> Iterator[Edge]:
    edge = Edge(NODE, port=manager.edge_port, directory=tmp_path / "edge")
    with edge.running():
        yield edge


def test_workers_count_after_a_boot_without_the_cloud_and_deliver_later(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None, edge: Edge
) -> None:
    create_models(client, namespace)
    client.create(service(namespace))
    client.create(dataset("data0", NODE, namespace))
    job = {
        "apiVersion": "edgeai.io/v1alpha1",
        "kind": "FederatedLearningJob",
        "metadata": {"name": "learns", "namespace": namespace},
        "spec": federated_learning_spec(trainers=1),
    }
    client.create(job)
    workers = Workers(client, namespace)
    names = {SERVICE_WORKER, TRAINER}
    eventually("both pods", lambda: names <= workers.pods().keys())
    secrets = {name: workers.secret(workers.pods()[name]) for name in names}
    eventually("both tasks on the node", lambda: edge.tasks(namespace) >= {"digits", "learns"})
    for name in names:
        edge.report(name, secret=secrets[name], seen=5)
        workers.wait_for(name, 5)

    manager.stop()
    edge.stop(signal.SIGKILL)
    pods = workers.pods()
    edge.start()
    started = {name for name in names if starts_offline(pods[name])}
    for name in started:
        edge.report(name, secret=secrets[name], seen=9)
    manager.start()
    assert started == names
    for name in names:
        workers.wait_for(name, 9)
