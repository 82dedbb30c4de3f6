"""PyTorchJobs and TFJobs on a real control plane. The tests say what becomes of the pods."""

from typing import Final

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.training import (
    REPLICAS,
    end,
    job_path,
    names,
    pytorch_job,
    tf_job,
    wait_for_conditions,
)
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

WATCHED_S: Final = 3.0


def test_a_pytorch_job_runs_restarts_a_worker_and_succeeds(
    client: Client,
    control_plane: ControlPlane,
    manager: GlobalManager,
    namespace: str,
    kubelet: None,
) -> None:
    client.create(pytorch_job(namespace, cleanPodPolicy="All"))
    path = job_path(namespace)
    wait_for_conditions(client, path, "Created", "Running")
    assert names(client, namespace) == REPLICAS
    assert names(client, namespace, "services") == REPLICAS

    before = client.get(f"/api/v1/namespaces/{namespace}/pods/mnist-worker-1")["metadata"]["uid"]
    end(client, namespace, "mnist-worker-1", 137)

    def made_anew() -> bool:
        pod = client.find(f"/api/v1/namespaces/{namespace}/pods/mnist-worker-1")
        return pod is not None and pod["metadata"]["uid"] != before

    eventually("another pod of worker 1", made_anew)
    job = wait_for_conditions(client, path, "Created", "Running")
    assert job["status"]["restarts"] == {"mnist-worker-1": 1}

    end(client, namespace, "mnist-master-0", 0)
    wait_for_conditions(client, path, "Created", "not Running", "Succeeded")
    for outcome in ("created", "restarted", "successful"):
        assert counted(manager, namespace, outcome) == 1
    eventually("the end of all pods", lambda: not names(client, namespace))
    eventually("the end of all Services", lambda: not names(client, namespace, "services"))
    shown = control_plane.kubectl("get", "pytorchjob", "mnist", "--namespace", namespace).stdout
    assert [line.split()[:2] for line in shown.splitlines()] == [
        ["NAME", "STATE"],
        ["mnist", "Succeeded"],
    ]


def counted(manager: GlobalManager, namespace: str, outcome: str) -> float:
    """How many jobs of the namespace the manager has counted."""
    values = manager.metric(f"training_operator_jobs_{outcome}_total")
    return sum(value for labels, value in values.items() if f'"{namespace}"' in labels)


def test_an_exit_code_below_128_fails_the_job(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None
) -> None:
    client.create(pytorch_job(namespace))
    wait_for_conditions(client, job_path(namespace), "Created", "Running")
    end(client, namespace, "mnist-worker-0", 1)
    wait_for_conditions(client, job_path(namespace), "Created", "not Running", "Failed")


@pytest.mark.parametrize("kind", ["PyTorchJob", "TFJob"])
def test_a_sidecar_decides_neither_restarts_nor_the_end(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None, kind: str
) -> None:
    """The sidecar of each pod ends with 143 when its node stops it."""
    is_torch = kind == "PyTorchJob"
    job = pytorch_job(namespace) if is_torch else tf_job(namespace, "v1")
    replicas = job["spec"]["pytorchReplicaSpecs" if is_torch else "tfReplicaSpecs"]["Worker"]
    sidecar = {"name": "proxy", "image": "edgeai/test", "restartPolicy": "Always"}
    replicas["template"]["spec"]["initContainers"] = [sidecar]
    replicas["restartPolicy"] = "ExitCode"
    client.create(job)
    path = job_path(namespace, f"{kind.lower()}s")
    wait_for_conditions(client, path, "Created", "Running")
    end(client, namespace, "mnist-worker-0", 137)
    eventually(
        "a restart", lambda: client.get(path)["status"].get("restarts") == {"mnist-worker-0": 1}
    )
    wait_for_conditions(client, path, "Created", "Running")
    end(client, namespace, "mnist-worker-0", 0 if kind == "TFJob" else 1)
    outcome = "Succeeded" if kind == "TFJob" else "Failed"
    wait_for_conditions(client, path, "Created", "not Running", outcome)


def test_suspend_and_resume(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None
) -> None:
    client.create(pytorch_job(namespace))
    path = job_path(namespace)
    wait_for_conditions(client, path, "Created", "Running")
    client.patch(path, {"spec": {"runPolicy": {"suspend": True}}})
    wait_for_conditions(client, path, "Created", "not Running", "Suspended")
    eventually("the end of all pods", lambda: not names(client, namespace))
    client.patch(path, {"spec": {"runPolicy": {"suspend": False}}})
    wait_for_conditions(client, path, "Created", "not Suspended", "Running")
    assert names(client, namespace) == REPLICAS


def test_a_deadline_and_a_time_to_live_fire_on_a_quiet_job(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None
) -> None:
    policy = {"activeDeadlineSeconds": 2, "ttlSecondsAfterFinished": 2, "cleanPodPolicy": "All"}
    client.create(pytorch_job(namespace, **policy))
    eventually("the deletion of the job", lambda: client.find(job_path(namespace)) is None)
    eventually("the end of all pods", lambda: not names(client, namespace))


@pytest.fixture
def running_job(client: Client, manager: GlobalManager, namespace: str, kubelet: None) -> str:
    """The path of a PyTorchJob that runs."""
    client.create(pytorch_job(namespace))
    wait_for_conditions(client, job_path(namespace), "Created", "Running")
    return job_path(namespace)


def test_kubectl_scales_the_workers(
    client: Client, control_plane: ControlPlane, namespace: str, running_job: str
) -> None:
    for count in (3, 1):
        scaled = control_plane.kubectl(
            "scale", "pytorchjob/mnist", f"--replicas={count}", "--namespace", namespace
        )
        assert scaled.returncode == 0, scaled.stderr
        expected = ["mnist-master-0", *(f"mnist-worker-{index}" for index in range(count))]

        def are_there(expected: list[str] = expected) -> bool:
            found = names(client, namespace)
            assert found == expected, f"{found}"
            return True

        eventually(f"{count} workers", are_there)
    scale = client.get(f"{running_job}/scale")
    assert scale["status"]["selector"].endswith("training.kubeflow.org/replica-type=worker")


@pytest.mark.parametrize(("version", "policy"), [("v1", "Never"), ("v1alpha2", "Always")])
def test_a_tf_job_keeps_the_conventions_of_the_version_in_which_it_was_written(
    client: Client, manager: GlobalManager, namespace: str, kubelet: None, version: str, policy: str
) -> None:
    client.create(tf_job(namespace, version))
    job = wait_for_conditions(client, job_path(namespace, "tfjobs"), "Created", "Running")
    assert job["status"]["profile"] == version
    pod = client.get(f"/api/v1/namespaces/{namespace}/pods/mnist-worker-0")
    assert pod["spec"]["restartPolicy"] == policy
    field = {"v1": "replicaStatuses", "v1alpha2": "tfReplicaStatuses"}[version]
    assert job["status"][field]["Worker"]["active"] == 1
    again = client.get(job_path(namespace, "tfjobs", version))
    assert again["apiVersion"] == f"kubeflow.org/{version}"


def test_a_settled_job_writes_nothing(
    client: Client, control_plane: ControlPlane, namespace: str, running_job: str
) -> None:
    def active() -> bool:
        statuses = client.get(running_job)["status"]["replicaStatuses"]
        return bool(statuses["Worker"].get("active") == 2)

    eventually("two active workers", active)
    mark = f"/{namespace}/"
    settled: dict[str, int] = {}

    def is_quiet() -> bool:
        nonlocal settled
        before, settled = settled, _of(control_plane.registry(), mark)
        return before == settled

    eventually("no write for a while", is_quiet, poll_s=WATCHED_S)


def _of(registry: dict[str, int], mark: str) -> dict[str, int]:
    return {key: revision for key, revision in registry.items() if mark in key}
