"""PyTorchJobs and TFJobs on a real control plane, and what tests say and ask about them."""

from typing import Any, Final

from edgeai.cli.api import Object
from tests.support import training_operator
from tests.support.client import Client
from tests.support.waiting import eventually

NODE: Final = "edge0"


def template(container: str) -> dict[str, Any]:
    containers = [{"name": container, "image": "edgeai/test"}]
    return {"spec": {"nodeName": NODE, "containers": containers}}


def pytorch_job(namespace: str, **run: Any) -> Object:
    replicas = {
        "Master": {"template": template("pytorch")},
        "Worker": {"replicas": 2, "template": template("pytorch"), "restartPolicy": "ExitCode"},
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "mnist", "namespace": namespace},
        "spec": {"pytorchReplicaSpecs": replicas, "runPolicy": run},
    }


def tf_job(namespace: str, version: str) -> Object:
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "TFJob",
        "metadata": {"name": "mnist", "namespace": namespace},
        "spec": {"tfReplicaSpecs": {"Worker": {"template": template("tensorflow")}}},
    }


def job_path(namespace: str, plural: str = "pytorchjobs", version: str = "v1") -> str:
    return f"/apis/kubeflow.org/{version}/namespaces/{namespace}/{plural}/mnist"


def names(client: Client, namespace: str, plural: str = "pods") -> list[str]:
    found = client.list(f"/api/v1/namespaces/{namespace}/{plural}")
    return sorted(each["metadata"]["name"] for each in found)


def wait_for_conditions(client: Client, path: str, *expected: str) -> Object:
    def check() -> Object:
        job = client.get(path)
        listed = job.get("status", {}).get("conditions", [])
        told = [one["type"] if one["status"] == "True" else f"not {one['type']}" for one in listed]
        assert told == [*expected], f"{told}"
        return job

    return eventually(f"the conditions {expected}", check)


def end(client: Client, namespace: str, pod: str, code: int) -> None:
    """The pod's container ends with this code."""
    spec = client.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")["spec"]
    container, others = spec["containers"][0], spec.get("initContainers", [])
    state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
    told = {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }
    status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [told]}
    # The node stops the sidecars when the containers have ended, and many end with a code then.
    sidecars = [
        {**told, "name": other["name"], "state": STOPPED}
        for other in others
        if other.get("restartPolicy") == "Always"
    ]
    status |= {"initContainerStatuses": sidecars} if sidecars else {}
    client.patch(f"/api/v1/namespaces/{namespace}/pods/{pod}/status", {"status": status})


STOPPED: Final = {"terminated": {"exitCode": 143, "reason": "Error"}}
REPLICAS: Final = ["mnist-master-0", "mnist-worker-0", "mnist-worker-1"]


# ---- a job that the training operator has started ----

STARTED: Final = "2026-01-02T01:00:00Z"


def run_by_the_operator(client: Client, namespace: str, **run: Any) -> None:
    """A PyTorchJob whose pods all run, with everything that the operator has made and written."""
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    eventually("the account of the pods", lambda: client.find(account) is not None)
    job = client.create(pytorch_job(namespace, **run))
    for child in training_operator.children(job):
        client.create(child)
    status = training_operator.status(job, STARTED)
    client.patch(f"{job_path(namespace)}/status", {"status": status})

    def all_run() -> bool:
        pods = client.list(f"/api/v1/namespaces/{namespace}/pods")
        return [pod["status"]["phase"] for pod in pods] == ["Running"] * len(REPLICAS)

    eventually("all pods run", all_run)


def uids(client: Client, namespace: str, plural: str) -> dict[str, str]:
    found = client.list(f"/api/v1/namespaces/{namespace}/{plural}")
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}
