"""The training jobs of the tests: one leader and some workers."""

from typing import Any

import msgspec

from edgeai.cli.api import Object
from tests.clients.clusters import TrainingCluster


class Framework(msgspec.Struct, frozen=True):
    """The words that differ between the kinds."""

    kind: str
    plural: str
    container: str
    replica_specs: str
    leader: str
    """Type of the replica that decides the job."""


PYTORCH = Framework("PyTorchJob", "pytorchjobs", "pytorch", "pytorchReplicaSpecs", "Master")
TENSORFLOW = Framework("TFJob", "tfjobs", "tensorflow", "tfReplicaSpecs", "Chief")
FRAMEWORKS = (PYTORCH, TENSORFLOW)


def training_job(
    framework: Framework, training: TrainingCluster, *, workers: int = 1, **run: Any
) -> Object:
    """Named mnist. Args: run: fields of the run policy"""
    template = {"spec": training.pod_spec(framework.container)}
    leader = {"replicas": 1, "restartPolicy": "Never", "template": template}
    worker = {"replicas": workers, "restartPolicy": "ExitCode", "template": template}
    # The leader listens nowhere.
    metadata = {"name": "mnist", "annotations": {"edgeai.io/wait-for-master": "false"}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": framework.kind,
        "metadata": metadata,
        "spec": {
            framework.replica_specs: {framework.leader: leader, "Worker": worker},
            "runPolicy": run,
        },
    }


def pod_names(framework: Framework, *, workers: int) -> list[str]:
    """Of training_job, sorted."""
    return [
        f"mnist-{framework.leader.lower()}-0",
        *(f"mnist-worker-{index}" for index in range(workers)),
    ]
