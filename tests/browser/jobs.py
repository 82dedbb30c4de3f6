"""One job of every kind, with programs that run for as long as the tests look."""

from typing import Any, Final

from edgeai.cli.api import Object
from edgeai.cli.system import CLOUD
from tests.support.manifests import manifest

SLEEP: Final = {
    "containers": [{"name": "main", "image": "sleeper", "command": ["sleep", "600"]}],
}
NAMESPACE: Final = "default"


def of_every_kind() -> list[Object]:
    federation = {
        "aggregationWorker": {
            "model": {"name": "small"},
            "template": {"spec": {"nodeName": CLOUD, **SLEEP}},
        },
        "trainingWorkers": [
            {"dataset": {"name": "images"}, "template": {"spec": {**_ON_EDGE, **SLEEP}}}
        ],
    }
    elastic = {
        "launcher": {"template": {"spec": SLEEP}},
        "worker": {"replicas": 2, "template": {"spec": SLEEP}},
    }
    data = {"url": "/data/images.csv", "format": "csv", **_ON_EDGE}
    return [
        *(_edgeai("Model", name, {"url": f"/data/{name}.npz", "format": "npz"}) for name in MODELS),
        _edgeai("Dataset", "images", data),
        joint_inference("digits"),
        joint_inference("waits", model="missing"),
        _edgeai("FederatedLearningJob", "learn", federation),
        training("PyTorchJob", "pytorchReplicaSpecs", "torch"),
        training("TFJob", "tfReplicaSpecs", "tensor"),
        _elastic("TrainingJob", "elastic", etReplicaSpecs=elastic),
        _elastic("ScaleOut", "elastic-scaleout", selector=_SELECTOR, toAdd={"count": 1}),
        _elastic("ScaleIn", "elastic-scalein", selector=_SELECTOR, toDelete={"count": 1}),
    ]


_SELECTOR: Final = {"name": "elastic"}
MODELS: Final = ("small", "big")
_ON_EDGE: Final = {"nodeName": "edge0"}


def joint_inference(name: str, *, model: str = "small") -> Object:
    spec = {
        "edgeWorker": {
            "model": {"name": model},
            "hardExampleMining": {"name": "IBT"},
            "template": {"spec": {**_ON_EDGE, **SLEEP}},
        },
        "cloudWorker": {
            "model": {"name": "big"},
            "template": {"spec": {"nodeName": CLOUD, **SLEEP}},
        },
    }
    return _edgeai("JointInferenceService", name, spec)


def training(kind: str, field: str, name: str) -> Object:
    template = {"spec": {"containers": [{**SLEEP["containers"][0], "name": _CONTAINERS[kind]}]}}
    spec = {field: {"Worker": {"replicas": 2, "template": template}}}
    return manifest(f"kubeflow.org/v1 {kind}", name, NAMESPACE, spec=spec)


_CONTAINERS: Final = {"PyTorchJob": "pytorch", "TFJob": "tensorflow"}


def _edgeai(kind: str, name: str, spec: dict[str, Any]) -> Object:
    return manifest(f"edgeai.io/v1alpha1 {kind}", name, NAMESPACE, spec=spec)


def _elastic(kind: str, name: str, **spec: Any) -> Object:
    return manifest(f"kai.alibabacloud.com/v1alpha1 {kind}", name, NAMESPACE, spec=spec)
