"""TF_CONFIG: the cluster of a TFJob and the task of one replica, as TensorFlow reads them.

Source, byte for byte: kubeflow/training-operator 1.9, pkg/controller.v1/tensorflow/tensorflow.go.
"""

import json
from typing import Any, Final

from edgeai.api.specs import InvalidSpec
from globalmanager.contract import Observed
from globalmanager.kinds.shared.pods import literal
from globalmanager.kinds.training.framework import EnvVar, KubeflowJob
from globalmanager.kinds.training.replicas import name_of, port_of

CHIEF: Final = "Chief"
EVALUATOR: Final = "Evaluator"
MASTER: Final = "Master"
PS: Final = "PS"
WORKER: Final = "Worker"
_NAME: Final = "TF_CONFIG"
MAX_BYTES: Final = 128 * 1024 - len(f"{_NAME}=\0")
"""Linux starts no program with a longer text in an environment variable (MAX_ARG_STRLEN)."""
_MAX_AFFIXES: Final = 48
"""Characters of one host in TF_CONFIG beside the names of job and namespace and the domain."""


def environment(observed: Observed, type_: str, index: int) -> list[EnvVar]:
    """TF_CONFIG; nothing for the only replica of a job."""
    spec: KubeflowJob = observed.spec
    # Upstream leaves it out too: without the variable TensorFlow trains alone.
    if spec.total == 1:
        return []
    hosts = _hosts(observed, spec)
    task = {"type": type_.lower(), "index": index}
    if spec.spec.enable_dynamic_worker:
        # As upstream, a dynamic worker knows no other worker, so workers may come and go.
        cluster = _sparse(hosts, type_.lower(), index)
        return [_variable({"cluster": cluster, "task": task})]
    return [_variable({"cluster": hosts, "task": task, "environment": "cloud"})]


def environment_without_evaluator(observed: Observed, type_: str, index: int) -> list[EnvVar]:
    """As `environment`, without evaluators in the cluster, and for an only replica, too."""
    spec: KubeflowJob = observed.spec
    hosts = _hosts(observed, spec)
    # As in version 0.3 of the TF operator. An evaluator reads checkpoints and trains with nobody.
    hosts.pop(EVALUATOR.lower(), None)
    task = {"type": type_.lower(), "index": index}
    return [_variable({"cluster": hosts, "task": task, "environment": "cloud"})]


def fault(observed: Observed) -> InvalidSpec | None:
    """The fault of a job whose TF_CONFIG is so long that no container could start."""
    spec: KubeflowJob = observed.spec
    names = len(observed.ref.name) + len(observed.ref.namespace)
    domain = len(observed.settings.cluster_domain)
    # This bound costs nothing. Only a job near the limit has its texts encoded.
    if (spec.total + 1) * (names + domain + _MAX_AFFIXES) <= MAX_BYTES:
        return None
    texts = (
        variable["value"]
        for replica in spec.replicas
        if replica.count
        # The last replica of a type has the longest index, so the longest text of its type.
        for variable in spec.framework.environment(observed, replica.type, replica.count - 1)
    )
    longest = max(map(len, texts), default=0)
    if longest <= MAX_BYTES:
        return None
    problem = (
        f"has {spec.total} replicas, whose names make {_NAME} {longest} bytes long; Linux starts "
        f"no program with more than {MAX_BYTES}"
    )
    return InvalidSpec("spec.tfReplicaSpecs", problem, "use fewer replicas or a shorter job name")


def _hosts(observed: Observed, spec: KubeflowJob) -> dict[str, list[str]]:
    """Type in lower case -> host:port of each replica, the types in the order of the alphabet."""
    job, domain = observed.ref, observed.settings.cluster_domain
    # As upstream, where the variable CUSTOM_CLUSTER_DOMAIN sets the domain.
    suffix = f".{job.namespace}.svc" + (f".{domain}" if domain else "")
    hosts = {}
    # Upstream encodes a map of Go, whose keys are sorted, and the text must be the same.
    for replica in sorted(spec.replicas, key=lambda replica: replica.type.lower()):
        end = f"{suffix}:{port_of(spec.framework, replica)}"  # the same for all of a type
        names = (name_of(job.name, replica.type, index) for index in range(replica.count))
        hosts[replica.type.lower()] = [name + end for name in names]
    return hosts


def _sparse(hosts: dict[str, list[str]], type_: str, index: int) -> dict[str, Any]:
    """The cluster as one replica of a job with dynamic workers needs it: a worker knows itself and
    all parameter servers, a parameter server knows itself, the others know nobody.
    """
    if type_ == PS.lower():
        return {"worker": {}, "ps": [hosts["ps"][index]]}
    if type_ == WORKER.lower():
        return {"worker": {str(index): hosts["worker"][index]}, "ps": hosts.get("ps", [])}
    # As upstream (kubeflow/training-operator#1763).
    return {"worker": {}, "ps": []}


def _variable(config: dict[str, Any]) -> EnvVar:
    # Go writes no spaces, and the text is the operator's byte for byte.
    return literal(_NAME, json.dumps(config, separators=(",", ":")))
