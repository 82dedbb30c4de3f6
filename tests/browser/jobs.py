"""One job of every kind, with programs that run for as long as the tests look."""

from typing import Any, Final

from edgeai.cli.api import Object
from edgeai.cli.system import CLOUD

SLEEP: Final = {
    "containers": [{"name": "main", "image": "sleeper", "command": ["sleep", "600"]}],
}
NAMESPACE: Final = "default"


def of_every_kind() -> list[Object]:
    return [
        *(_edgeai("Model", name, {"url": f"/data/{name}.npz", "format": "npz"}) for name in MODELS),
        _edgeai("Dataset", "images", {"url": "/data/images.csv", "format": "csv", **_ON_EDGE}),
        joint_inference("digits"),
        joint_inference("waits", model="missing"),
        _edgeai(
            "FederatedLearningJob",
            "learn",
            {
                "aggregationWorker": {
                    "model": {"name": "small"},
                    "template": {"spec": {"nodeName": CLOUD, **SLEEP}},
                },
                "trainingWorkers": [
                    {"dataset": {"name": "images"}, "template": {"spec": {**_ON_EDGE, **SLEEP}}}
                ],
            },
        ),
        training("PyTorchJob", "pytorchReplicaSpecs", "torch"),
        training("TFJob", "tfReplicaSpecs", "tensor"),
        {
            "apiVersion": "kai.alibabacloud.com/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": "elastic", "namespace": NAMESPACE},
            "spec": {
                "etReplicaSpecs": {
                    "launcher": {"template": {"spec": SLEEP}},
                    "worker": {"replicas": 2, "template": {"spec": SLEEP}},
                }
            },
        },
        *(
            {
                "apiVersion": "kai.alibabacloud.com/v1alpha1",
                "kind": kind,
                "metadata": {"name": f"elastic-{kind.lower()}", "namespace": NAMESPACE},
                "spec": {"selector": {"name": "elastic"}, field: {"count": 1}},
            }
            for kind, field in (("ScaleOut", "toAdd"), ("ScaleIn", "toDelete"))
        ),
    ]


MODELS: Final = ("small", "big")
_ON_EDGE: Final = {"nodeName": "edge0"}


def joint_inference(name: str, *, model: str = "small") -> Object:
    return _edgeai(
        "JointInferenceService",
        name,
        {
            "edgeWorker": {
                "model": {"name": model},
                "hardExampleMining": {"name": "IBT"},
                "template": {"spec": {**_ON_EDGE, **SLEEP}},
            },
            "cloudWorker": {
                "model": {"name": "big"},
                "template": {"spec": {"nodeName": CLOUD, **SLEEP}},
            },
        },
    )


def training(kind: str, field: str, name: str) -> Object:
    template = {"spec": {"containers": [{**SLEEP["containers"][0], "name": _CONTAINERS[kind]}]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {field: {"Worker": {"replicas": 2, "template": template}}},
    }


_CONTAINERS: Final = {"PyTorchJob": "pytorch", "TFJob": "tensorflow"}


def _edgeai(kind: str, name: str, spec: dict[str, Any]) -> Object:
    return {
        "apiVersion": "edgeai.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }
