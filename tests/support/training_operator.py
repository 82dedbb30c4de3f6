"""Pods and Services of training jobs as the Kubeflow operators make them.

Sources: kubeflow/training-operator release-1.9, pkg/controller.v1/common/{pod,service}.go and
pkg/apis/kubeflow.org/v1/common_types.go; kubeflow/tf-operator v0.3.0 and v1.3.0.
"""

import copy
from collections.abc import Iterator
from typing import Any, Final

from tests.support.manifests import owned_by

PREFIX: Final = "training.kubeflow.org/"
CONTROLLERS: Final = {"PyTorchJob": "pytorchjob-controller", "TFJob": "tfjob-controller"}
PORTS: Final = {"PyTorchJob": ("pytorchjob-port", 23456), "TFJob": ("tfjob-port", 2222)}
SPECS: Final = {"PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs"}


def labels(job: Any, type_: str, index: int, *, is_old: bool = False) -> dict[str, str]:
    """Args: is_old: the labels of the TF operator, before the training operator"""
    name, kind = job["metadata"]["name"], job["kind"]
    if is_old:
        return {
            "group-name": "kubeflow.org",
            "job-name": name,
            "tf-job-name": name,
            "replica-type": type_.lower(),
            "replica-index": str(index),
        }
    return {
        f"{PREFIX}operator-name": CONTROLLERS[kind],
        f"{PREFIX}job-name": name,
        f"{PREFIX}replica-type": type_.lower(),
        f"{PREFIX}replica-index": str(index),
    }


def children(job: Any, *, is_old: bool = False) -> Iterator[Any]:
    """The Service and the pod of each replica.

    Args: job: with apiVersion, kind and the metadata that the API server has given the job
    """
    for type_, replica in job["spec"][SPECS[job["kind"]]].items():
        for index in range(replica.get("replicas", 1)):
            marks = labels(job, type_, index, is_old=is_old)
            yield _service(job, type_, index, marks)
            yield _pod(job, type_, index, marks, replica)


def _metadata(job: Any, type_: str, index: int, marks: dict[str, str]) -> dict[str, Any]:
    given = job["metadata"]
    return {
        "name": f"{given['name']}-{type_.lower()}-{index}",
        "namespace": given["namespace"],
        "labels": dict(marks),
        "ownerReferences": owned_by(job, controller=True, blockOwnerDeletion=True),
    }


def _service(job: Any, type_: str, index: int, marks: dict[str, str]) -> Any:
    name, number = PORTS[job["kind"]]
    port = {"name": name, "port": number, "targetPort": number, "protocol": "TCP"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job, type_, index, marks),
        "spec": {"clusterIP": "None", "selector": dict(marks), "ports": [port]},
    }


def _pod(job: Any, type_: str, index: int, marks: dict[str, str], replica: Any) -> Any:
    name, number = PORTS[job["kind"]]
    template = copy.deepcopy(replica["template"])
    metadata = _metadata(job, type_, index, marks)
    metadata["labels"] = {**(template.get("metadata") or {}).get("labels", {}), **marks}
    spec = template["spec"]
    spec["containers"][0]["ports"] = [{"name": name, "containerPort": number}]
    policy = replica.get("restartPolicy", "OnFailure" if job["kind"] == "PyTorchJob" else "Never")
    spec["restartPolicy"] = "Never" if policy == "ExitCode" else policy
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def status(job: Any, started_at: str) -> dict[str, Any]:
    """The status of a running job."""
    kind, name = job["kind"], job["metadata"]["name"]

    def condition(type_: str, message: str) -> dict[str, Any]:
        times = {"lastTransitionTime": started_at, "lastUpdateTime": started_at}
        reason = f"{kind}{type_}"
        return {"type": type_, "status": "True", "reason": reason, "message": message, **times}

    selector = ",".join(
        [
            f"{PREFIX}job-name={name}",
            f"{PREFIX}operator-name={CONTROLLERS[kind]}",
            f"{PREFIX}replica-type=",
        ]
    )
    numbers = {
        type_: {"active": replica.get("replicas", 1), "selector": f"{selector}{type_.lower()}"}
        for type_, replica in job["spec"][SPECS[kind]].items()
    }
    return {
        "conditions": [
            condition("Created", f"{kind} {name} is created."),
            condition("Running", f"{kind} {name} is running."),
        ],
        "replicaStatuses": numbers,
        "startTime": started_at,
    }
