"""Running jobs of the training operator on a real control plane, when edgeai serves their group.

No operator runs here: the tests make the pods, Services and status that the operator makes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgeai.cli.api import Object
from edgeai.times import rfc3339, utc_now
from tests.cluster import decoder
from tests.cluster.controlplane import ControlPlane
from tests.cluster.decoder import Answer, upstream_definitions
from tests.cluster.training import (
    REPLICAS,
    STARTED,
    end,
    job_path,
    names,
    pytorch_job,
    run_by_the_operator,
    uids,
    wait_for_conditions,
)
from tests.support import training_operator
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually


@pytest.fixture
def start(
    crds: ControlPlane, system_namespace: str, nodes: tuple[str, ...], tmp_path: Path
) -> Iterator[Callable[[], GlobalManager]]:
    """Starts the GlobalManager that takes the jobs over."""
    started: list[GlobalManager] = []

    def begin() -> GlobalManager:
        manager = GlobalManager(
            kubeconfig=crds.kubeconfig, system_namespace=system_namespace, directory=tmp_path
        )
        started.append(manager)
        manager.start()
        return manager

    yield begin
    for manager in started:
        assert manager.stop() == 0, manager.logs()


def test_a_running_job_goes_on_with_its_pods_and_ends(
    client: Client, namespace: str, kubelet: None, start: Callable[[], GlobalManager]
) -> None:
    run_by_the_operator(client, namespace, cleanPodPolicy="Running")
    pods, services = (uids(client, namespace, plural) for plural in ("pods", "services"))
    start()

    def is_taken_over() -> Object:
        job = client.get(job_path(namespace))
        assert job["status"].get("observedGeneration") == 1, f"{job['status']}"
        return job

    told = eventually("a status of the GlobalManager", is_taken_over)["status"]
    assert [one["lastTransitionTime"] for one in told["conditions"]] == [STARTED, STARTED]
    assert told["startTime"] == STARTED
    assert told["replicaStatuses"]["Worker"]["active"] == 2
    assert uids(client, namespace, "pods") == pods
    assert uids(client, namespace, "services") == services

    client.delete(f"/api/v1/namespaces/{namespace}/pods/mnist-worker-1")

    def is_another() -> bool:
        found = uids(client, namespace, "pods").get("mnist-worker-1")
        return found not in (None, pods["mnist-worker-1"])

    eventually("another pod of worker 1", is_another)
    pod, service = (
        client.get(f"/api/v1/namespaces/{namespace}/{plural}/mnist-worker-1")
        for plural in ("pods", "services")
    )
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["metadata"]["uid"] == services["mnist-worker-1"]

    end(client, namespace, "mnist-master-0", 0)
    wait_for_conditions(client, job_path(namespace), "Created", "not Running", "Succeeded")
    eventually("no running pod", lambda: names(client, namespace) == ["mnist-master-0"])
    kept = uids(client, namespace, "pods")
    assert kept == {"mnist-master-0": pods["mnist-master-0"]}


def test_a_job_is_suspended_and_resumed(
    client: Client, namespace: str, kubelet: None, start: Callable[[], GlobalManager]
) -> None:
    run_by_the_operator(client, namespace)
    start()
    path = job_path(namespace)
    client.patch(path, {"spec": {"runPolicy": {"suspend": True}}})
    wait_for_conditions(client, path, "Created", "not Running", "Suspended")
    eventually("the end of all pods", lambda: not names(client, namespace))
    eventually("the end of all Services", lambda: not names(client, namespace, "services"))
    client.patch(path, {"spec": {"runPolicy": {"suspend": False}}})
    wait_for_conditions(client, path, "Created", "not Suspended", "Running")
    assert names(client, namespace) == REPLICAS


def test_a_job_that_ended_under_the_operator_is_only_cleaned_up(
    client: Client, namespace: str, kubelet: None, start: Callable[[], GlobalManager]
) -> None:
    run_by_the_operator(client, namespace, cleanPodPolicy="All", ttlSecondsAfterFinished=2)
    status = training_operator.status(client.get(job_path(namespace)), STARTED)
    ended = {**status["conditions"][0], "type": "Succeeded", "reason": "PyTorchJobSucceeded"}
    listed = [*status["conditions"], ended]
    told = {"conditions": listed, "completionTime": rfc3339(utc_now())}
    client.patch(f"{job_path(namespace)}/status", {"status": told})
    start()
    eventually("the deletion of the job", lambda: client.find(job_path(namespace)) is None)
    eventually("the end of all pods", lambda: not names(client, namespace))


def test_the_definitions_of_the_operator_come_back(
    crds: ControlPlane, namespace: str, kubelet: None, start: Callable[[], GlobalManager]
) -> None:
    """As the page about the migration says it; then edgeai takes the job over once more."""
    client, path = crds.client, job_path(namespace)
    client.create(pytorch_job(namespace, cleanPodPolicy="All"))
    manager = start()
    wait_for_conditions(client, path, "Created", "Running")
    pods, before = uids(client, namespace, "pods"), client.get(path)
    assert manager.stop() == 0, manager.logs()
    try:
        options = ("--server-side", "--force-conflicts", "--kustomize")
        applied = crds.kubectl("apply", *options, str(upstream_definitions()))
        assert applied.returncode == 0, applied.stderr

        def is_upstreams() -> Object:
            job = client.get(path)
            assert "observedGeneration" not in job["status"], f"{job['status']}"
            return job

        job = eventually("a job without the fields of edgeai", is_upstreams)
        with decoder.running() as go_client:
            assert go_client.decode(job) == Answer()
        replicas = "pytorchReplicaSpecs"
        assert job["spec"][replicas] == before["spec"][replicas]
        assert job["status"]["conditions"] == before["status"]["conditions"]
        expected = training_operator.labels(job, "Worker", 1)
        pod = client.get(f"/api/v1/namespaces/{namespace}/pods/mnist-worker-1")
        assert expected.items() <= pod["metadata"]["labels"].items()
    finally:
        crds.install_crds()
    start()
    end(client, namespace, "mnist-master-0", 0)
    wait_for_conditions(client, path, "Created", "not Running", "Succeeded")
    assert uids(client, namespace, "pods").items() <= pods.items()
