"""A small job of each kind before a way breaks it: its objects, and the worker that breaks."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from edgeai.cli.api import Object
from tests.support.manifests import manifest

JOB: Final = "broken"
SCALER: Final = "scaler"
EDGE: Final = "edge0"
DATA: Final = "/usr/share/zoneinfo/UTC"
"""A file of every node."""
_SLEEP: Final = ["sleep", "600"]


class Place(NamedTuple):
    """What the machine of all nodes has."""

    program: Path
    """A program for a processor that does not exist."""
    port: int
    """A port of 127.0.0.1 that another process has."""
    image: str = "registry.example/team/train:1"
    """Has sh, sleep and python3."""


@dataclass
class Draft:
    """The objects of one namespace. A way changes them before they are created."""

    kind: str
    namespace: str
    place: Place
    object: Object
    """The job, or the scaler, that is looked at."""
    pod: dict[str, Any]
    """The spec of the template of the worker that breaks."""
    others: list[dict[str, Any]]
    """The specs of the templates of the other workers."""
    culprit: str
    """The beginning of the name of the pod that breaks."""
    before: list[Object] = field(default_factory=list)
    """Objects that exist before the job."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels of the namespace."""

    @property
    def container(self) -> dict[str, Any]:
        """The first container of the worker that breaks."""
        first: dict[str, Any] = self.pod["containers"][0]
        return first

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.object["spec"]
        return spec


def draft(kind: str, namespace: str, place: Place) -> Draft:
    """A job of this kind that would run."""
    return _DRAFTS[kind](kind, namespace, place)


def pod_spec(image: str, container: str = "main") -> dict[str, Any]:
    """A pod that sleeps."""
    one = {"name": container, "image": image, "command": [*_SLEEP]}
    return {"containers": [one], "terminationGracePeriodSeconds": 0}


def _model(namespace: str, name: str) -> Object:
    return manifest("edgeai.io/v1alpha1 Model", name, namespace, spec={"url": DATA})


def _joint_inference(kind: str, namespace: str, place: Place) -> Draft:
    edge, cloud = pod_spec(place.image), pod_spec(place.image)
    spec = {
        "edgeWorker": {
            "model": {"name": "small"},
            "nodeName": EDGE,
            "template": {"spec": edge},
        },
        "cloudWorker": {"model": {"name": "big"}, "template": {"spec": cloud}},
    }
    service = manifest(f"edgeai.io/v1alpha1 {kind}", JOB, namespace, spec=spec)
    before = [_model(namespace, name) for name in ("small", "big")]
    return Draft(kind, namespace, place, service, cloud, [edge], f"{JOB}-deployment-cloud", before)


def _federation(kind: str, namespace: str, place: Place) -> Draft:
    aggregator, trainer = pod_spec(place.image), pod_spec(place.image)
    spec = {
        "aggregationWorker": {"model": {"name": "result"}, "template": {"spec": aggregator}},
        "trainingWorkers": [{"dataset": {"name": "images"}, "template": {"spec": trainer}}],
    }
    job = manifest(f"edgeai.io/v1alpha1 {kind}", JOB, namespace, spec=spec)
    data = {"url": DATA, "format": "txt", "nodeName": EDGE}
    dataset = manifest("edgeai.io/v1alpha1 Dataset", "images", namespace, spec=data)
    before = [_model(namespace, "result"), dataset]
    return Draft(kind, namespace, place, job, aggregator, [trainer], f"{JOB}-aggregation", before)


def _replicas(kind: str, namespace: str, place: Place) -> Draft:
    """A job of the training operator with a leader and a worker."""
    prefix, leader = {"PyTorchJob": ("pytorch", "Master"), "TFJob": ("tf", "Chief")}[kind]
    container = "pytorch" if kind == "PyTorchJob" else "tensorflow"
    first, second = pod_spec(place.image, container), pod_spec(place.image, container)
    replicas = {
        leader: {"restartPolicy": "OnFailure", "template": {"spec": first}},
        "Worker": {"restartPolicy": "OnFailure", "template": {"spec": second}},
    }
    spec = {f"{prefix}ReplicaSpecs": replicas, "runPolicy": {}}
    job = manifest(f"kubeflow.org/v1 {kind}", JOB, namespace, spec=spec)
    return Draft(kind, namespace, place, job, first, [second], f"{JOB}-{leader.lower()}-0")


def _elastic_job(namespace: str, place: Place) -> tuple[Object, dict[str, Any], dict[str, Any]]:
    """The job, and the pods of its launcher and its workers."""
    launcher, worker = pod_spec(place.image), pod_spec(place.image)
    workers = {"replicas": 1, "minReplicas": 1, "maxReplicas": 2, "template": {"spec": worker}}
    spec = {
        "launcherAttachMode": "kubexec",
        "etReplicaSpecs": {"launcher": {"template": {"spec": launcher}}, "worker": workers},
    }
    job = manifest("kai.alibabacloud.com/v1alpha1 TrainingJob", JOB, namespace, spec=spec)
    return job, launcher, worker


def _elastic(kind: str, namespace: str, place: Place) -> Draft:
    job, launcher, worker = _elastic_job(namespace, place)
    return Draft(kind, namespace, place, job, worker, [launcher], f"{JOB}-worker")


def _scaler(kind: str, namespace: str, place: Place) -> Draft:
    job, launcher, worker = _elastic_job(namespace, place)
    job["spec"]["etReplicaSpecs"]["worker"]["replicas"] = 1 if kind == "ScaleOut" else 2
    amount = {"toAdd": {"count": 1}} if kind == "ScaleOut" else {"toDelete": {"count": 1}}
    spec = {"selector": {"name": JOB}, **amount}
    scaler = manifest(f"kai.alibabacloud.com/v1alpha1 {kind}", SCALER, namespace, spec=spec)
    return Draft(kind, namespace, place, scaler, worker, [launcher], SCALER, [job])


_DRAFTS: Final[Mapping[str, Callable[[str, str, Place], Draft]]] = {
    "JointInferenceService": _joint_inference,
    "FederatedLearningJob": _federation,
    "PyTorchJob": _replicas,
    "TFJob": _replicas,
    "TrainingJob": _elastic,
    "ScaleOut": _scaler,
    "ScaleIn": _scaler,
}


def copy_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A deep copy, to be changed."""
    return copy.deepcopy(dict(spec))
