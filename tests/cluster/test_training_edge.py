"""Training jobs and nodes that fall silent, on a real control plane, with a real LocalController.

The node controller, the scheduler and the taints are Kubernetes' own. The nodes run no containers.
"""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from tests.cluster import binaries
from tests.cluster.controlplane import ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.lone_node import LoneNode
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

FIRST, SECOND = "training-edge-a", "training-edge-b"
TOKENS: Final = {FIRST: "secret-of-the-first-node"}
GROUP: Final = "test.edgeai.io/group"
GRACE: Final = "edgeai.io/edge-grace-period-seconds"
WORKER: Final = "mnist-worker-0"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
LOST_S: Final = 90.0  # the node controller needs at least 10 s

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One that watches nodes, for a GlobalManager."""
    directory = tmp_path_factory.mktemp("controlplane")
    control_plane = ControlPlane(binaries.obtain(), directory, watches_nodes=True)
    with control_plane.running():
        control_plane.prepare()
        yield control_plane


@pytest.fixture(scope="module")
def client(control_plane: ControlPlane) -> Client:
    return control_plane.client


@pytest.fixture(scope="module")
def manager(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GlobalManager]:
    """The GlobalManager as a process, ready."""
    manager = GlobalManager(
        kubeconfig=control_plane.kubeconfig,
        directory=tmp_path_factory.mktemp("globalmanager"),
        tokens=TOKENS,
    )
    with manager.running():
        yield manager


@pytest.fixture
def add_node(client: Client, namespace: str) -> Iterator[Callable[[str], LoneNode]]:
    """Function from a name to a node of this test's group, that is ready."""
    made: list[LoneNode] = []

    def add(name: str) -> LoneNode:
        node = LoneNode(client, name, namespace, {GROUP: namespace})
        made.append(node)
        eventually(f"no taint on {name}", lambda: not taints(client, name))
        return node

    yield add
    for node in made:
        node.remove()


def taints(client: Client, node: str) -> list[str]:
    return [one["key"] for one in client.get(f"/api/v1/nodes/{node}")["spec"].get("taints", [])]


class EdgeTraining:
    """A PyTorchJob with one worker on a node of the group."""

    def __init__(
        self, client: Client, namespace: str, *, grace: str, tolerations: tuple[Object, ...] = ()
    ) -> None:
        self._client = client
        self.path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/pytorchjobs/mnist"
        self.pod_path = f"/api/v1/namespaces/{namespace}/pods/{WORKER}"
        spec = {
            "nodeSelector": {GROUP: namespace},
            "containers": [{"name": "pytorch", "image": "edgeai/test"}],
            **({"tolerations": list(tolerations)} if tolerations else {}),
        }
        worker = {"template": {"spec": spec}, "restartPolicy": "ExitCode"}
        metadata = {"name": "mnist", "namespace": namespace, "annotations": {GRACE: grace}}
        client.create(
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "metadata": metadata,
                "spec": {"pytorchReplicaSpecs": {"Worker": worker}},
            }
        )
        self.wait_for("Running", lambda status: last(status) == "Running")
        self.uid = self.pod()["metadata"]["uid"]

    def pod(self) -> Object:
        return self._client.get(self.pod_path)

    def wait_for(self, what: str, check: Callable[[Object], object]) -> Object:
        def holds() -> Object:
            status: Object = self._client.get(self.path).get("status", {})
            pod = self._client.find(self.pod_path) or {}
            assert check(status), f"{status}, pod: {pod.get('metadata')}, {pod.get('status')}"
            return status

        return eventually(what, holds, timeout_s=LOST_S)

    def wait_for_contact(self, reason: str) -> Object:
        return self.wait_for(reason, lambda status: contact(status).get("reason") == reason)

    def wait_for_silence(self) -> Object:
        return self.wait_for("silence", lambda status: WORKER in status.get("outOfContact", {}))

    def wait_for_another_pod(self, node: str) -> None:
        def check() -> bool:
            pod = self._client.find(self.pod_path) or {"metadata": {}, "spec": {}}
            found = pod["metadata"].get("uid", self.uid), pod["spec"].get("nodeName")
            assert found[0] != self.uid, f"{pod}"
            assert found[1] == node, f"{pod}"
            return True

        eventually("another pod", check, timeout_s=LOST_S)


def contact(status: Object) -> Object:
    listed = status.get("conditions", [])
    return next((one for one in listed if one["type"] == "EdgeConnected"), {})


def last(status: Object) -> str:
    return str((status.get("conditions") or [{"type": ""}])[-1]["type"])


def test_a_replica_of_a_lost_node_is_made_anew_elsewhere_after_the_grace_time(
    client: Client, manager: GlobalManager, namespace: str, add_node: Callable[[str], LoneNode]
) -> None:
    node = add_node(FIRST)
    job = EdgeTraining(client, namespace, grace="5")
    (toleration,) = [one for one in job.pod()["spec"]["tolerations"] if one["key"] == UNREACHABLE]
    assert "tolerationSeconds" not in toleration, "Kubernetes would evict the pod"
    add_node(SECOND)
    node.fall_silent()
    status = job.wait_for("the loss", lambda status: status.get("restarts"))
    assert status["restarts"] == {WORKER: 1}
    assert UNREACHABLE in taints(client, FIRST)
    job.wait_for_another_pod(SECOND)
    status = job.wait_for("Running", lambda status: last(status) == "Running")
    assert status["restarts"] == {WORKER: 1}
    assert "outOfContact" not in status


def test_a_node_that_is_back_within_the_grace_time_keeps_its_replica(
    client: Client, manager: GlobalManager, namespace: str, add_node: Callable[[str], LoneNode]
) -> None:
    node = add_node(FIRST)
    job = EdgeTraining(client, namespace, grace="600")
    node.fall_silent()
    status = job.wait_for_silence()
    assert last(status) == "Running"
    node.come_back()
    status = job.wait_for("contact", lambda status: "outOfContact" not in status)
    assert job.pod()["metadata"]["uid"] == job.uid
    assert "restarts" not in status


def test_an_evicted_pod_of_a_silent_node_waits_for_the_grace_time_of_its_job(
    client: Client, manager: GlobalManager, namespace: str, add_node: Callable[[str], LoneNode]
) -> None:
    """The user's own toleration lets Kubernetes evict the pod after a second."""
    own = {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    node = add_node(FIRST)
    job = EdgeTraining(client, namespace, grace="600", tolerations=(own,))
    add_node(SECOND)  # Kubernetes evicts nothing while all nodes are silent
    node.fall_silent()
    eventually("eviction", lambda: "deletionTimestamp" in job.pod()["metadata"], timeout_s=LOST_S)
    status = job.wait_for_silence()
    assert last(status) == "Running"
    assert "restarts" not in status
    client.patch(job.path, {"metadata": {"annotations": {GRACE: "1"}}})
    job.wait_for_another_pod(SECOND)
    job.wait_for("one restart", lambda status: status.get("restarts") == {WORKER: 1})


# ---- the word of the LocalController -------------------------------------------------------------


class MetaServer:
    """The pods of a node as the node itself knows them: a copy of a pod, with another status."""

    def __init__(self) -> None:
        self.pods: list[Object] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = {"metadata": {"resourceVersion": "1"}, "items": outer.pods}
                data = b"" if "watch=true" in self.path else json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="metaserver")
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def metaserver() -> Iterator[MetaServer]:
    metaserver = MetaServer()
    yield metaserver
    metaserver.stop()


@pytest.fixture
def localcontroller(
    manager: GlobalManager, metaserver: MetaServer, tmp_path: Path
) -> Iterator[Edge]:
    """The LocalController of the first node, which reads pods from the MetaServer."""
    flags = ("--pods-api", metaserver.url)
    edge = Edge(FIRST, token=TOKENS[FIRST], port=manager.edge_port, directory=tmp_path, flags=flags)
    with edge.running():
        yield edge


def ended(pod: Object, code: int) -> Object:
    """The pod as its node knows it."""
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
    status = {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [{"name": "pytorch", "state": state}],
    }
    return {**pod, "status": status}


@pytest.fixture
def job_of_a_silent_kubelet(
    client: Client,
    manager: GlobalManager,
    namespace: str,
    add_node: Callable[[str], LoneNode],
    metaserver: MetaServer,
    localcontroller: Edge,
) -> EdgeTraining:
    """A job whose worker runs on FIRST. The kubelet there is silent, the LocalController is not."""
    node = add_node(FIRST)
    job = EdgeTraining(client, namespace, grace="0")
    eventually("the task", lambda: localcontroller.tasks(namespace) == {"mnist"})
    add_node(SECOND)
    node.fall_silent()
    eventually("the taint", lambda: UNREACHABLE in taints(client, FIRST), timeout_s=LOST_S)
    return job


def test_a_success_counts_by_the_localcontroller_while_the_kubelet_is_silent(
    metaserver: MetaServer, job_of_a_silent_kubelet: EdgeTraining
) -> None:
    job = job_of_a_silent_kubelet
    earlier = {**job.pod(), "metadata": {**job.pod()["metadata"], "uid": "of an earlier pod"}}
    metaserver.pods = [ended(earlier, 1)]
    job.wait_for("a report", lambda status: status.get("workers"))
    status = job.wait_for_contact("Connected")
    assert last(status) == "Running", "an earlier pod says nothing"
    metaserver.pods = [ended(job.pod(), 0)]
    status = job.wait_for("Succeeded", lambda status: last(status) == "Succeeded")
    assert status["workers"][WORKER]["details"]["exitCodes"] == "pytorch=0"
    assert job.pod()["status"]["phase"] == "Running", "the API server never heard of the end"


def test_an_exit_code_counts_by_the_localcontroller_while_the_kubelet_is_silent(
    metaserver: MetaServer, job_of_a_silent_kubelet: EdgeTraining
) -> None:
    job = job_of_a_silent_kubelet
    metaserver.pods = [ended(job.pod(), 137)]
    job.wait_for("a restart", lambda status: status.get("restarts") == {WORKER: 1})
    job.wait_for_another_pod(SECOND)
