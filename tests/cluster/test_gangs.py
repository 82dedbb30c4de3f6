"""PodGroups of training jobs on a real API server, with the types of two gang schedulers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli.api import Object
from globalmanager.kinds.shared.quantities import amount_of
from tests.cluster.controlplane import ControlPlane
from tests.cluster.training import (
    REPLICAS,
    end,
    job_path,
    names,
    pytorch_job,
    run_by_the_operator,
    uids,
    wait_for_conditions,
)
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

TYPES: Final = Path(__file__).parent / "podgroups.yaml"
VOLCANO: Final = "scheduling.volcano.sh/v1beta1"
PLUGINS: Final = "scheduling.x-k8s.io/v1alpha1"
PLUGINS_SCHEDULER: Final = "scheduler-plugins-scheduler"
NEEDED_S: Final = 60.0  # an informer asks seldom for a type that is not there

Launch = Callable[[str], GlobalManager]


@pytest.fixture
def launch(crds: ControlPlane, system_namespace: str, tmp_path: Path) -> Iterator[Launch]:
    """Starts a GlobalManager with a gang scheduler. The types of PodGroups are gone afterwards."""
    started: list[GlobalManager] = []

    def start(scheduler: str) -> GlobalManager:
        manager = GlobalManager(
            kubeconfig=crds.kubeconfig,
            system_namespace=system_namespace,
            directory=tmp_path,
            flags=("--gang-scheduler-name", scheduler),
        )
        started.append(manager)
        manager.start()
        return manager

    yield start
    try:
        for manager in started:
            assert manager.stop() == 0, manager.logs()
    finally:
        crds.kubectl("delete", "--ignore-not-found", "-f", str(TYPES))


def install(plane: ControlPlane) -> None:
    plane.install_crds(TYPES)


@pytest.fixture
def client_of_groups(crds: ControlPlane) -> Client:
    """Where PodGroups are served already."""
    install(crds)
    return crds.client


def group_path(namespace: str, version: str) -> str:
    return f"/apis/{version}/namespaces/{namespace}/podgroups/mnist"


def wait_for_group(client: Client, namespace: str, version: str) -> Object:
    def check() -> Object:
        found = client.find(group_path(namespace, version))
        assert found is not None, "there is no PodGroup"
        return found

    return eventually("the PodGroup", check, timeout_s=NEEDED_S)


def test_a_job_waits_for_the_types_of_volcano_and_for_its_admission(
    crds: ControlPlane, launch: Launch, namespace: str, kubelet: None
) -> None:
    client = crds.client
    manager = launch("volcano")
    is_ready, reasons = manager.readyz()
    assert is_ready
    assert any(f"does not serve {VOLCANO}" in reason for reason in reasons)
    client.create(pytorch_job(namespace, schedulingPolicy={"queue": "research"}))
    path = job_path(namespace)
    job = wait_for_conditions(client, path, "Stalled", "Created")
    assert job["status"]["conditions"][0]["reason"] == "PodGroupsNotServed"

    install(crds)
    group = wait_for_group(client, namespace, VOLCANO)
    assert group["spec"] == {"minMember": 3, "queue": "research"}
    wait_for_conditions(client, path, "Created")
    assert names(client, namespace) == []

    client.patch(f"{group_path(namespace, VOLCANO)}/status", {"status": {"phase": "Inqueue"}})
    wait_for_conditions(client, path, "Created", "Running")
    assert names(client, namespace) == REPLICAS
    pod = client.get(f"/api/v1/namespaces/{namespace}/pods/mnist-worker-1")
    assert pod["spec"]["schedulerName"] == "volcano"
    assert pod["metadata"]["annotations"]["volcano.sh/task-spec"] == "worker"
    written = client.get(group_path(namespace, VOLCANO))["metadata"]
    assert written["generation"] == 1  # nobody has written .spec again

    client.patch(path, {"spec": {"runPolicy": {"suspend": True}}})
    wait_for_conditions(client, path, "Created", "not Running", "Suspended")
    eventually(
        "the end of the PodGroup",
        lambda: client.find(group_path(namespace, VOLCANO)) is None,
    )


def test_scheduler_plugins_get_a_pod_group_until_the_job_ends(
    client_of_groups: Client, launch: Launch, namespace: str, kubelet: None
) -> None:
    client = client_of_groups
    launch(PLUGINS_SCHEDULER)
    policy = {"minAvailable": 2, "minResources": {"cpu": "2"}, "scheduleTimeoutSeconds": 30}
    client.create(pytorch_job(namespace, schedulingPolicy=policy))
    path = job_path(namespace)
    wait_for_conditions(client, path, "Created", "Running")
    group = wait_for_group(client, namespace, PLUGINS)
    assert group["spec"] == {
        "minMember": 2,
        "minResources": {"cpu": "2"},
        "scheduleTimeoutSeconds": 30,
    }
    pod = client.get(f"/api/v1/namespaces/{namespace}/pods/mnist-master-0")
    assert pod["spec"]["schedulerName"] == PLUGINS_SCHEDULER
    assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "mnist"
    end(client, namespace, "mnist-master-0", 0)
    wait_for_conditions(client, path, "Created", "not Running", "Succeeded")
    eventually(
        "the end of the PodGroup",
        lambda: client.find(group_path(namespace, PLUGINS)) is None,
    )


def test_a_pod_group_of_the_training_operator_belongs_to_the_job(
    client_of_groups: Client, launch: Launch, namespace: str, kubelet: None
) -> None:
    client = client_of_groups
    run_by_the_operator(client, namespace)
    pod = client.get(f"/api/v1/namespaces/{namespace}/pods/mnist-worker-1")
    metadata = {
        "name": "mnist",
        "namespace": namespace,
        "ownerReferences": pod["metadata"]["ownerReferences"],
    }
    spec = {"minMember": 3, "queue": "default"}
    group = {"apiVersion": VOLCANO, "kind": "PodGroup", "metadata": metadata, "spec": spec}
    made = client.create(group)
    client.patch(f"{group_path(namespace, VOLCANO)}/status", {"status": {"phase": "Running"}})
    before = uids(client, namespace, "pods")
    launch("volcano")
    client.delete(f"/api/v1/namespaces/{namespace}/pods/mnist-worker-1")

    def is_made_anew() -> bool:
        found = uids(client, namespace, "pods").get("mnist-worker-1")
        return found not in (None, before["mnist-worker-1"])

    eventually("another pod of worker 1", is_made_anew, timeout_s=NEEDED_S)
    found = client.get(group_path(namespace, VOLCANO))
    assert found["metadata"]["uid"] == made["metadata"]["uid"]
    assert found["status"] == {"phase": "Running"}


def container(name: str, cpu: str, memory: str, **fields: str) -> Object:
    requests = {"requests": {"cpu": cpu, "memory": memory}}
    return {"name": name, "image": "edgeai/test", "resources": requests, **fields}


COSTLY: Final = {
    "overhead": {"cpu": "250m"},
    "initContainers": [
        container("first", "3", "1Mi"),
        container("proxy", "500m", "20Mi", restartPolicy="Always"),
        container("second", "2500m", "100Mi"),
    ],
    "containers": [container("pytorch", "1", "50Mi")],
}
POD_REQUESTS: Final = {"requests": {"memory": "300Mi"}}


def test_a_gang_requests_what_the_api_server_counts_for_its_pods(
    crds: ControlPlane, client_of_groups: Client, launch: Launch, namespace: str
) -> None:
    """A ResourceQuota counts pods by the rule of the scheduler."""
    client = client_of_groups
    runtime: Object = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc"}
    overhead = {"podFixed": {"cpu": "250m"}}
    runtime |= {"metadata": {"name": namespace}, "overhead": overhead}
    crds.kubectl("apply", "-f", "-", documents=[runtime])
    hard = {"requests.cpu": "100", "requests.memory": "100Gi"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": hard}}
    client.create({**quota, "metadata": {"name": "all", "namespace": namespace}})
    # A server before Kubernetes 1.34 drops the requests of the pod itself.
    of_pod = {"resources": POD_REQUESTS} if int(client.get("/version")["minor"]) >= 34 else {}
    job = pytorch_job(namespace)
    for replicas in job["spec"]["pytorchReplicaSpecs"].values():
        replicas["template"] = {"spec": {**COSTLY, **of_pod, "runtimeClassName": namespace}}
    launch(PLUGINS_SCHEDULER)
    client.create(job)
    group = wait_for_group(client, namespace, PLUGINS)
    quota_path = f"/api/v1/namespaces/{namespace}/resourcequotas/all"

    def check() -> Object:
        assert names(client, namespace) == REPLICAS
        used: Object = client.get(quota_path)["status"].get("used", {})
        assert used.get("requests.cpu", "0") != "0"
        return used

    used = eventually("the pods in the quota", check, timeout_s=NEEDED_S)
    crds.kubectl("delete", "runtimeclass", namespace)
    requested = group["spec"]["minResources"]
    counted = {f"requests.{name}": amount_of(amount) for name, amount in requested.items()}
    assert counted == {name: amount_of(amount) for name, amount in used.items()}
