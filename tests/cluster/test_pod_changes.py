"""What others may change of a running pod, on a real API server: its resources, its readiness, its
scheduling gates. None of it is a reason to write anything.
"""

import time
from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from tests.cluster.controlplane import ControlPlane
from tests.cluster.elastic import path_in, training_job, wait_for_phase
from tests.cluster.training import (
    NODE,
    REPLICAS,
    job_path,
    names,
    pytorch_job,
    uids,
    wait_for_conditions,
)
from tests.support.client import Client
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("manager", "kubelet")
GATE: Final = "example.com/ready"
SETTLED_S: Final = 3.0
FIRST_WITH_RESIZE: Final = 33
FIELDS: Final[Object] = {"readinessGates": [{"conditionType": GATE}]}
LESS: Final = {"resources": {"requests": {"cpu": "100m"}}}
MORE: Final = {"resources": {"requests": {"cpu": "200m"}}}


def with_fields(job: Object, replicas: str) -> Object:
    """The job, each of whose pods requests LESS and has a readiness gate."""
    for replica in job["spec"][replicas].values():
        spec = replica["template"]["spec"]
        replica["template"] = {
            "spec": {**spec, **FIELDS, "containers": [{**spec["containers"][0], **LESS}]}
        }
    return job


def written(plane: ControlPlane, namespace: str) -> dict[str, int]:
    """What the namespace holds but its pods: key -> revision of its last write."""
    mark, pods = f"/{namespace}/", f"/registry/pods/{namespace}/"
    return {
        key: revision
        for key, revision in plane.registry().items()
        if mark in key and not key.startswith(pods)
    }


def settled(plane: ControlPlane, namespace: str) -> dict[str, int]:
    before: dict[str, int] = {}

    def check() -> bool:
        nonlocal before
        before, last = written(plane, namespace), before
        assert before == last
        return True

    eventually("an end of all writes", check, poll_s=1.0)
    return before


def change(client: Client, namespace: str, pod: Object, conditions: list[Object]) -> None:
    """Its resources, as `kubectl edit --subresource resize`, and its status, as a kubelet."""
    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    containers = [{**container, **MORE} for container in pod["spec"]["containers"]]
    client.patch(f"{path}/resize", {"spec": {"containers": containers}})
    generation = client.get(path)["metadata"].get("generation", 0)
    for condition in conditions:
        own = [{**condition, "observedGeneration": generation}]
        others = [
            one
            for one in client.get(path)["status"].get("conditions", [])
            if one["type"] != condition["type"]
        ]
        status = {"observedGeneration": generation, "conditions": [*others, *own]}
        client.patch(f"{path}/status", {"status": status})


CONDITIONS: Final = [
    {"type": "PodResizePending", "status": "True", "reason": "Deferred"},
    {"type": "PodResizeInProgress", "status": "True"},
    {"type": GATE, "status": "False", "reason": "Draining"},
    {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"},
]


@pytest.mark.parametrize("kind", ["PyTorchJob", "TrainingJob"])
def test_a_pod_that_is_resized_or_not_ready_by_a_gate_is_left_alone(
    client: Client, control_plane: ControlPlane, namespace: str, kind: str
) -> None:
    if int(client.get("/version")["minor"]) < FIRST_WITH_RESIZE:
        pytest.skip(f"pods are resized since Kubernetes 1.{FIRST_WITH_RESIZE}")
    if kind == "PyTorchJob":
        client.create(with_fields(pytorch_job(namespace), "pytorchReplicaSpecs"))
        wait_for_conditions(client, job_path(namespace), "Created", "Running")
    else:
        client.create(with_fields(training_job(namespace), "etReplicaSpecs"))
        wait_for_phase(client, namespace, "Running")
    # No number of pods, so that the scheduler still finds no room for any.
    room = {"cpu": "8", "memory": "8Gi"}
    client.patch(f"/api/v1/nodes/{NODE}/status", {"status": {"allocatable": room}})
    path = job_path(namespace) if kind == "PyTorchJob" else path_in(namespace)
    before, pods = settled(control_plane, namespace), uids(client, namespace, "pods")
    status = client.get(path)["status"]
    for pod in client.list(f"/api/v1/namespaces/{namespace}/pods"):
        change(client, namespace, pod, CONDITIONS)
    time.sleep(SETTLED_S)
    assert client.get(path)["status"] == status
    assert written(control_plane, namespace) == before
    assert uids(client, namespace, "pods") == pods
    for pod in client.list(f"/api/v1/namespaces/{namespace}/pods"):
        assert pod["spec"]["containers"][0]["resources"] == MORE["resources"]


def test_a_pod_whose_scheduling_gates_others_remove_is_left_alone(
    client: Client, control_plane: ControlPlane, namespace: str
) -> None:
    job = pytorch_job(namespace)
    gates: dict[str, Any] = {"schedulingGates": [{"name": GATE}], "nodeName": None}
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"] |= gates
    client.create(job)
    eventually("the pods", lambda: names(client, namespace) == REPLICAS)
    before, pods = settled(control_plane, namespace), uids(client, namespace, "pods")
    for name in REPLICAS:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        client.patch(path, {"spec": {"schedulingGates": None}})
    after = settled(control_plane, namespace)
    assert uids(client, namespace, "pods") == pods
    changed = {key.split("/")[2] for key in after if after[key] != before.get(key)}
    # The scheduler has no room for the pods, and the job says so.
    assert changed <= {"events", "kubeflow.org"}
