"""TrainingJobs on a real control plane, and what tests say and ask about them."""

from typing import Any, Final

from edgeai.cli.api import Object
from tests.cluster.training import NODE
from tests.support.client import Client
from tests.support.waiting import eventually

JOB: Final = "elastic"
LAUNCHER: Final = f"{JOB}-launcher"


def worker(index: int) -> str:
    return f"{JOB}-worker-{index}"


def training_job(
    namespace: str, *, name: str = JOB, worker: dict[str, Any] | None = None, **spec: Any
) -> Object:
    """Args: worker: fields of etReplicaSpecs.worker"""
    containers = [{"name": "main", "image": "registry.test/horovod"}]
    template = {"spec": {"nodeName": NODE, "containers": containers}}
    replicas = {
        "launcher": {"template": template},
        "worker": {"replicas": 2, "template": template, **(worker or {})},
    }
    return {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"etReplicaSpecs": replicas, **spec},
    }


def path_in(namespace: str, name: str = JOB) -> str:
    return f"/apis/kai.alibabacloud.com/v1alpha1/namespaces/{namespace}/trainingjobs/{name}"


def wait_for_phase(client: Client, namespace: str, phase: str, name: str = JOB) -> Object:
    def check() -> Object:
        job = client.get(path_in(namespace, name))
        told = job.get("status", {})
        assert told.get("phase") == phase, f"{told}"
        return job

    return eventually(f"phase {phase} of {name}", check)


def hosts(client: Client, namespace: str) -> list[str]:
    """The list that the launcher reads."""
    config = client.get(f"/api/v1/namespaces/{namespace}/configmaps/{JOB}-config")
    lines: list[str] = config["data"]["hostfile"].splitlines()
    return lines


def evict(client: Client, namespace: str, pod: str) -> None:
    """As the kubelet does on a node that is short of memory."""
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}
    client.patch(f"/api/v1/namespaces/{namespace}/pods/{pod}/status", {"status": status})
