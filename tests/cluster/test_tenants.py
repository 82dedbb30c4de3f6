"""Two tenants on a real control plane: pods of one, made to look like those of the other's jobs."""

import base64
import json
from typing import Any, Final

import pytest

from edgeai.cli.api import Object, path_of
from tests.cluster.samples import create_models, model, service
from tests.cluster.test_federated_learning import dataset
from tests.globalmanager.kinds.edge.samples import federated_learning_spec
from tests.globalmanager.kinds.training.samples import tf_spec
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

SPY: Final = "edge1"
LAST: Final = "edge2"
CRASHED: Final = {
    "phase": "Running",
    "containerStatuses": [
        {
            "name": "main",
            "image": "registry.test/forged:1",
            "imageID": "",
            "ready": False,
            "restartCount": 9,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "forged"}},
        }
    ],
}
EXPIRED: Final = {"phase": "Failed", "reason": "DeadlineExceeded", "message": "forged"}


@pytest.fixture
def mallory(client: Client) -> str:
    """Namespace of the other tenant; it lasts as long as the control plane."""
    metadata = {"generateName": "mallory-"}
    made = client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    name: str = made["metadata"]["name"]
    return name


def pods_of(client: Client, namespace: str) -> dict[str, Object]:
    found = client.list(f"/api/v1/namespaces/{namespace}/pods")
    return {pod["metadata"]["name"]: pod for pod in found}


def wait_for_pods(client: Client, namespace: str, count: int) -> dict[str, Object]:
    def check() -> dict[str, Object]:
        found = pods_of(client, namespace)
        assert len(found) == count, f"{len(found)} of {count} pods"
        return found

    return eventually("the pods of the workers", check)


def owner(object_: Object, *, controller: bool = True) -> Object:
    named = {key: object_[key] for key in ("apiVersion", "kind")}
    named |= {key: object_["metadata"][key] for key in ("name", "uid")}
    return {**named, "controller": controller}


def make_pod(
    client: Client,
    name: str,
    namespace: str,
    like: Object,
    *owners: Object,
    node: str = SPY,
    status: Any = None,
) -> None:
    """With the labels of the pod `like`; no ReplicaSet adopts it without the template's hash."""
    labels = dict(like["metadata"]["labels"])
    labels.pop("pod-template-hash", None)
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    spec = {
        "nodeName": node,
        "automountServiceAccountToken": False,  # the namespace's is made only now
        "containers": [{"name": "main", "image": "registry.test/forged:1"}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    made = client.create({**pod, "metadata": {**metadata, "ownerReferences": list(owners)}})
    if status is not None and client.find(path_of(made)):
        client.patch(f"{path_of(made)}/status", {"status": status})


def wait_for_nodes(client: Client, job: Object, nodes: str) -> Object:
    """The job's status, once the GlobalManager has seen the pod that was made last."""

    def check() -> Object:
        status: Object = client.get(path_of(job)).get("status", {})
        told = status.get("edgeNodes", "")
        assert LAST in told, f"nodes: {told!r}"
        return status

    status = eventually(f"node {LAST}", check)
    assert status["edgeNodes"] == nodes
    return status


def test_forged_pods_join_no_joint_inference_service(
    client: Client, manager: GlobalManager, namespace: str, mallory: str
) -> None:
    create_models(client, namespace)
    job = client.create(service(namespace))
    made = wait_for_pods(client, namespace, 2)
    edge = next(
        pod for pod in made.values() if pod["metadata"]["labels"]["edgeai.io/role"] == "edge"
    )
    (replica_set,) = edge["metadata"]["ownerReferences"]
    assert replica_set["kind"] == "ReplicaSet"
    owners = [[], [owner(job)], [replica_set], [owner(job, controller=False)]]
    for number, named in enumerate(owners):
        make_pod(client, f"forged-{number}", mallory, edge, *named, status=CRASHED)
    make_pod(client, "loose", namespace, edge, status=CRASHED)
    make_pod(client, "last", namespace, edge, owner(job), node=LAST)

    status = wait_for_nodes(client, job, f"edge0,{LAST}")
    assert (status["active"], status["failed"]) == (3, 0)
    assert status["phase"] == "Pending"
    assert "forged" not in json.dumps(status)


def test_a_forged_pod_ends_no_federated_learning_job(
    client: Client, manager: GlobalManager, namespace: str, mallory: str
) -> None:
    client.create(model("small", namespace))
    client.create(dataset("data0", "edge0", namespace))
    job = client.create(federation(namespace))
    trainer = wait_for_pods(client, namespace, 2)["digits-train-0"]
    assert trainer["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    make_pod(client, "digits-train-0", mallory, trainer, owner(job), status=EXPIRED)
    make_pod(client, "digits-train-1", mallory, trainer, status=EXPIRED)
    make_pod(client, "loose", namespace, trainer, status=EXPIRED)
    make_pod(client, "last", namespace, trainer, owner(job))

    def is_ending() -> bool:
        last = pods_of(client, namespace).get("last")
        return last is None or "deletionTimestamp" in last["metadata"]

    eventually("the end of a pod that no trainer needs", is_ending)
    status = client.get(path_of(job))["status"]
    assert (status["phase"], status["failed"]) == ("Pending", 0)
    assert "forged" not in json.dumps(status)


def test_a_privileged_container_is_refused_by_the_field_of_the_job(
    client: Client, manager: GlobalManager, namespace: str
) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    client.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})
    job = client.create(training_job(namespace))

    def is_told() -> Object:
        conditions = client.get(path_of(job)).get("status", {}).get("conditions", [])
        found: list[Object] = [each for each in conditions if each["type"] == "Stalled"]
        assert found, f"conditions: {conditions}"
        return found[0]

    told = eventually("the condition Stalled", is_told)
    assert told["reason"] == "ViolatesBaseline"
    field = "spec.containers[0].securityContext.privileged must not be true"
    assert f"spec.tfReplicaSpecs.Worker.template.{field}" in told["message"]
    assert pods_of(client, namespace) == {}

    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    client.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})
    wait_for_pods(client, namespace, 1)


def test_what_a_viewer_can_read_has_no_worker_secret(
    client: Client, manager: GlobalManager, namespace: str
) -> None:
    create_models(client, namespace)
    client.create(dataset("data0", "edge0", namespace))
    client.create(service(namespace))
    client.create({**federation(namespace), "metadata": {"name": "fl", "namespace": namespace}})
    wait_for_pods(client, namespace, 4)
    stored = [
        value
        for name in ("digits-edge", "fl-aggregation", "fl-train-0")
        for value in client.get(f"/api/v1/namespaces/{namespace}/secrets/{name}")["data"].values()
    ]
    secrets = {*stored, *(base64.b64decode(value).decode() for value in stored)}
    assert len(secrets) >= 6
    view = client.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/view")
    readable = {
        (group, plural)
        for rule in view["rules"]
        if {"list", "*"} & {*rule["verbs"]}
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    }
    assert ("", "secrets") not in readable
    lists = ("api/v1", "pods"), ("apis/apps/v1", "deployments"), ("apis/apps/v1", "replicasets")
    for root, plural in lists:
        shown = json.dumps(client.list(f"/{root}/namespaces/{namespace}/{plural}"))
        assert not [each for each in secrets if each in shown], plural


def training_job(namespace: str) -> Object:
    spec = tf_spec(Worker=1)
    (container,) = spec["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    container["securityContext"] = {"privileged": True}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "mnist", "namespace": namespace},
        "spec": spec,
    }


def federation(namespace: str) -> Object:
    return {
        "apiVersion": "edgeai.io/v1alpha1",
        "kind": "FederatedLearningJob",
        "metadata": {"name": "digits", "namespace": namespace},
        "spec": federated_learning_spec(1),
    }
