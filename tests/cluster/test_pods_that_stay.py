"""A pod that is deleted and does not go, on a real control plane: its job says so and goes on.

tests/globalmanager/kinds/test_pods_that_stay.py has all places. Here a finalizer and a node without
power keep the pods.
"""

import signal
from collections.abc import Iterator
from typing import Final

import pytest

from edgeai.cli.api import Object
from tests.cluster.elastic import path_in, training_job, wait_for_phase, worker
from tests.cluster.kubelet import Kubelet
from tests.cluster.test_elastic_scaling import scale_in, scale_out, wait_for_end, workers
from tests.cluster.training import NODE, end, job_path, pytorch_job, uids, wait_for_conditions
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(300, func_only=True)
FINALIZER: Final = "storage.example.com/flush"
LOST: Final = "edge1"
GRACE_S: Final = 1
WORKER: Final = "mnist-worker-0"


@pytest.fixture
def node(client: Client, namespace: str) -> Iterator[Kubelet]:
    kubelet = Kubelet(client, namespace)
    yield kubelet
    kubelet.stop()
    for pod in client.list(f"/api/v1/namespaces/{namespace}/pods"):
        release(client, namespace, pod["metadata"]["name"])


def hold(client: Client, namespace: str, pod: str) -> None:
    """Somebody's controller puts a finalizer onto the pod, and never removes it."""
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
    client.patch(path, {"metadata": {"finalizers": [FINALIZER]}})


def release(client: Client, namespace: str, pod: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
    if client.find(path) is not None:
        client.patch(path, {"metadata": {"finalizers": None}})


def with_short_grace(job: Object, field: str) -> Object:
    for replicas in job["spec"][field].values():
        replicas["template"]["spec"]["terminationGracePeriodSeconds"] = GRACE_S
    return job


def wait_for_stall(client: Client, path: str, *words: str) -> None:
    def check() -> bool:
        listed = client.get(path).get("status", {}).get("conditions", [])
        told = [one for one in listed if one["type"] == "Stalled"]
        assert [one["reason"] for one in told] == ["Terminating"], listed
        assert all(word in told[0]["message"] for word in words), told
        return True

    eventually("the condition Stalled", check, timeout_s=90)


# ---- scalers ------------------------------------------------------------------------------------


def with_a_worker_on(client: Client, namespace: str, node: str) -> None:
    """A TrainingJob that trains on three workers, the last of which is on another node."""
    client.create(training_job(namespace, worker={"replicas": 2}))
    wait_for_phase(client, namespace, "Running")
    for name, place in (("out", node), ("", NODE)):
        template = {"template": {"spec": {"nodeName": place}}}
        patch = {"spec": {"etReplicaSpecs": {"worker": template}}}
        client.patch(path_in(namespace), patch)
        if name:
            status = wait_for_end(client, client.create(scale_out(namespace, name, 1)))
            assert (status["phase"], status["addPods"]) == ("ScaleSucceeded", [worker(2)]), status


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("finalizer", f"it has the finalizers {FINALIZER} and stays"),
        ("lost node", "its node has not confirmed its end"),
    ],
)
def test_a_scale_in_ends_and_the_next_scaler_gets_another_index(
    client: Client, manager: GlobalManager, namespace: str, node: Kubelet, cause: str, words: str
) -> None:
    """Also when the GlobalManager is killed while it waits for the end of the pod."""
    with_a_worker_on(client, namespace, LOST)
    if cause == "finalizer":
        hold(client, namespace, worker(2))
    else:
        node.lost.add(LOST)
    removed = client.create(scale_in(namespace, "in", podNames=[worker(2)]))
    added = client.create(scale_out(namespace, "next", 1))
    ending = f"the deletion of {worker(2)}"
    path = f"/api/v1/namespaces/{namespace}/pods/{worker(2)}"
    eventually(ending, lambda: "deletionTimestamp" in client.get(path)["metadata"], timeout_s=60)
    manager.stop(signal.SIGKILL)
    manager.start()
    status = wait_for_end(client, removed)
    assert status["phase"] == "ScaleSucceeded", status
    assert f"pod {worker(2)} on node {LOST}: Terminating: {words}" in status["message"], status
    status = wait_for_end(client, added)
    assert (status["phase"], status["addPods"]) == ("ScaleSucceeded", [worker(3)]), status
    assert workers(client, namespace) == [worker(index) for index in range(4)], "worker 2 stays"
    wait_for_phase(client, namespace, "Running")
    release(client, namespace, worker(2))
    node.lost.clear()
    left = [worker(index) for index in (0, 1, 3)]
    eventually("the end of worker 2", lambda: workers(client, namespace) == left)


# ---- restart, suspension, a new job -------------------------------------------------------------


def test_a_replica_with_a_finalizer_starts_again_when_the_finalizer_is_gone(
    client: Client, manager: GlobalManager, namespace: str, node: Kubelet
) -> None:
    job = with_short_grace(pytorch_job(namespace), "pytorchReplicaSpecs")
    client.create(job)
    wait_for_conditions(client, job_path(namespace), "Created", "Running")
    hold(client, namespace, WORKER)
    end(client, namespace, WORKER, 137)
    first = uids(client, namespace, "pods")[WORKER]
    wait_for_stall(client, job_path(namespace), f"pod {WORKER}", FINALIZER)
    assert uids(client, namespace, "pods")[WORKER] == first
    release(client, namespace, WORKER)
    wait_for_conditions(client, job_path(namespace), "Created", "Running")
    assert uids(client, namespace, "pods")[WORKER] != first


def test_a_suspended_job_names_the_pod_on_a_lost_node_and_its_successor_the_name(
    client: Client, manager: GlobalManager, namespace: str, node: Kubelet
) -> None:
    """The job is deleted and made again under its name while the pod is still there."""
    job = with_short_grace(pytorch_job(namespace), "pytorchReplicaSpecs")
    client.create(job)
    wait_for_conditions(client, job_path(namespace), "Created", "Running")
    node.lost.add(NODE)
    client.patch(job_path(namespace), {"spec": {"runPolicy": {"suspend": True}}})
    words = (f"on node {NODE}", "its node has not confirmed its end")
    wait_for_stall(client, job_path(namespace), *words)
    told = client.get(job_path(namespace))["status"]["conditions"]
    assert told[-1]["type"] == "Suspended"
    client.delete(job_path(namespace), propagation="Background")
    client.create(job)
    wait_for_stall(client, job_path(namespace), "is still being deleted", words[1])
    node.lost.clear()
    wait_for_conditions(client, job_path(namespace), "Created", "Running")
