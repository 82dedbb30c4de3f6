"""TF_CONFIG: the cluster of a TFJob and the task of one replica, as TensorFlow reads them.

Source: kubeflow/training-operator 1.9, pkg/controller.v1/tensorflow/tensorflow.go. The text is the
same byte for byte.
"""

import json
from typing import Any, Final

from globalmanager.contract import Observed
from globalmanager.rules.pods import literal
from globalmanager.rules.training.framework import EnvVar, TrainingJob
from globalmanager.rules.training.replicas import name_of, port_of

CHIEF: Final = "Chief"
EVALUATOR: Final = "Evaluator"
MASTER: Final = "Master"
PS: Final = "PS"
WORKER: Final = "Worker"


def environment(observed: Observed, type_: str, index: int) -> list[EnvVar]:
    """TF_CONFIG; nothing for the only replica of a job."""
    spec: TrainingJob = observed.spec
    if spec.total == 1:
        return []
    hosts = _hosts(observed, spec)
    task = {"type": type_.lower(), "index": index}
    if spec.spec.enable_dynamic_worker:
        cluster = _sparse(hosts, type_.lower(), index)
        return [_variable({"cluster": cluster, "task": task})]
    return [_variable({"cluster": hosts, "task": task, "environment": "cloud"})]


def environment_without_evaluator(observed: Observed, type_: str, index: int) -> list[EnvVar]:
    """As `environment`, but the evaluators are no members of the cluster, and the only replica of a
    job gets the variable too.
    """
    spec: TrainingJob = observed.spec
    hosts = _hosts(observed, spec)
    hosts.pop(EVALUATOR.lower(), None)
    task = {"type": type_.lower(), "index": index}
    return [_variable({"cluster": hosts, "task": task, "environment": "cloud"})]


def _hosts(observed: Observed, spec: TrainingJob) -> dict[str, list[str]]:
    """Type in lower case -> host:port of each replica, the types in the order of the alphabet."""
    job, domain = observed.ref, observed.settings.cluster_domain
    suffix = f".{job.namespace}.svc" + (f".{domain}" if domain else "")
    return {
        each.type.lower(): [
            f"{name_of(job.name, each.type, index)}{suffix}:{port_of(spec.framework, each)}"
            for index in range(each.count)
        ]
        for each in sorted(spec.replicas, key=lambda each: each.type.lower())
    }


def _sparse(hosts: dict[str, list[str]], type_: str, index: int) -> dict[str, Any]:
    """The cluster as one replica of a job with dynamic workers needs it: a worker knows itself and
    all parameter servers, a parameter server knows itself, the others know nobody.
    """
    if type_ == PS.lower():
        return {"worker": {}, "ps": [hosts["ps"][index]]}
    if type_ == WORKER.lower():
        return {"worker": {str(index): hosts["worker"][index]}, "ps": hosts.get("ps", [])}
    return {"worker": {}, "ps": []}


def _variable(config: dict[str, Any]) -> EnvVar:
    return literal("TF_CONFIG", json.dumps(config, separators=(",", ":")))
