"""The launcher of a TrainingJob: its pod, its rights, and the ConfigMap with the list of hosts.

The Role names exactly the pods of the job's workers: others can have a future worker's name.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from edgeai.api.elastic import LAUNCHER
from edgeai.api.resources import (
    CONFIG_MAPS,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    ResourceType,
)
from edgeai.api.trainingjob import AttachMode
from edgeai.ids import WorkerName
from globalmanager.contract import Create, Observed, UpdateRule
from globalmanager.kinds.elastic.trainingjob import files, workers
from globalmanager.kinds.elastic.trainingjob.spec import TrainingJob
from globalmanager.kinds.shared import children, objects, pods, storage
from globalmanager.kinds.shared.attempts import ATTEMPT
from globalmanager.kinds.shared.storage import Placement

RBAC: Final = "rbac.authorization.k8s.io"
ROLES: Final = ResourceType(RBAC, "v1", "roles", "Role")
BINDINGS: Final = ResourceType(RBAC, "v1", "rolebindings", "RoleBinding")

OWNS: Final = {
    # Pods that run have read the key, and another one would lock them out of each other.
    SECRETS: UpdateRule.KEEP,
    SERVICES: UpdateRule.REPLACE,
    CONFIG_MAPS: UpdateRule.REPLACE,
    SERVICE_ACCOUNTS: UpdateRule.REPLACE,
    ROLES: UpdateRule.REPLACE,
    BINDINGS: UpdateRule.RECREATE,  # what a binding refers to cannot be changed
    PODS: UpdateRule.KEEP,
}
"""Type of the children of a TrainingJob -> what a plan does with a child that differs."""
ROLE_RULES: Final = (
    # `kubectl exec` reads the pod before it runs a command in it.
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    # kubexec.py comes by WebSocket: API servers ask for `get`, those since 1.35 for `create`, too.
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create", "get"]},
)
_READ_MODE: Final = 0o444
_EXECUTE_MODE: Final = 0o555


def launcher_name(job: str) -> WorkerName:
    return WorkerName(f"{job}-{LAUNCHER}")


def config_name(job: str) -> str:
    return f"{job}-config"


def account(observed: Observed, spec: TrainingJob, hosts: Collection[str]) -> tuple[Create, ...]:
    """The launcher's ServiceAccount, Role and RoleBinding.

    Args: hosts: the workers' pods in which the launcher may run commands
    """
    name = launcher_name(observed.ref.name)
    subject = {"kind": SERVICE_ACCOUNTS.kind, "name": name, "namespace": observed.ref.namespace}
    role = {"apiGroup": RBAC, "kind": ROLES.kind, "name": name}
    has_rights = spec.attach_mode is AttachMode.KUBEXEC
    # A rule without names of pods would hold for all pods.
    pod_names = sorted(hosts) if has_rights else []
    rules = [{**rule, "resourceNames": pod_names} for rule in ROLE_RULES] if pod_names else []
    contents: dict[ResourceType, dict[str, Any]] = {
        # With ssh the launcher does not use the API, so its pod gets no token.
        SERVICE_ACCOUNTS: {"automountServiceAccountToken": has_rights},
        ROLES: {"rules": rules},
        BINDINGS: {"roleRef": role, "subjects": [subject]},
    }
    return tuple(
        objects.child(observed, type_, name=name, role=LAUNCHER, content=content)
        for type_, content in contents.items()
    )


def pod(observed: Observed, spec: TrainingJob, attempt: int, marks: Mapping[str, str]) -> Create:
    """Args: attempt: how often it was started before; marks: annotations of the pod"""
    job, name = observed.ref.name, launcher_name(observed.ref.name)
    env = (
        # As in the et-operator: OpenMPI and Horovod then start their processes without ssh.
        [pods.literal("OMPI_MCA_plm_rsh_agent", files.KUBEXEC_PATH)]
        if spec.attach_mode is AttachMode.KUBEXEC
        else []
    )
    template = pods.build(
        observed,
        # As in the et-operator, this replaces an account that the template names.
        {**spec.launcher, "spec": {**spec.launcher["spec"], "serviceAccountName": name}},
        role=LAUNCHER,
        env=env,
        data=storage.joined(workers.ssh_files(observed, spec), _config_files(job)),
        labels=workers.labels(job, LAUNCHER),
        # The plan restarts the launcher, because each start counts for backoffLimit.
        restart_policy="Never",
    )
    metadata = template["metadata"]
    # A new pod reads the present list, so it begins with the hash of this list and needs no change.
    annotations = {**metadata.get("annotations", {}), **marks, ATTEMPT: str(attempt)}
    numbered = {**template, "metadata": {**metadata, "annotations": annotations}}
    return children.pod(observed, name=name, role=LAUNCHER, template=numbered, is_kept=True)


def _config_files(job: str) -> Placement:
    """The mounts of the ConfigMap, whose files the kubelet exchanges all at once."""
    # The et-operator rewrites the host file in place. Horovod may read it in between, and takes the
    # empty file for a removal of all hosts.
    # The et-operator's init container copies to these paths, so images know them. A directory and
    # no subPath, because the kubelet never updates a mount with a subPath.
    directories = {
        files.ELASTIC_DIRECTORY: {
            files.HOSTFILE: (files.HOSTFILE, _READ_MODE),
            files.DISCOVER_HOSTS: (files.DISCOVER_HOSTS, _EXECUTE_MODE),
        },
        files.MPI_DIRECTORY: {
            files.HOSTFILE: (files.HOSTFILE, _READ_MODE),
            files.DISCOVER_HOSTS: (files.DISCOVER_HOSTS, _EXECUTE_MODE),
            files.KUBEXEC: (files.KUBEXEC, _EXECUTE_MODE),
            files.KUBEXEC_PROGRAM: (files.KUBEXEC_PROGRAM, _EXECUTE_MODE),
            files.DEEPSPEED_HOSTFILE: (files.DEEPSPEED_HOSTFILE, _READ_MODE),
        },
        files.DEEPSPEED_DIRECTORY: {files.DEEPSPEED_HOSTFILE: (files.HOSTFILE, _READ_MODE)},
    }
    volumes, mounts = [], []
    for directory, keys in directories.items():
        volume = f"edgeai-{directory.rpartition('/')[2]}"
        items = [{"key": key, "path": path, "mode": mode} for key, (path, mode) in keys.items()]
        volumes.append({"name": volume, "configMap": {"name": config_name(job), "items": items}})
        mounts.append({"name": volume, "mountPath": directory})
    return Placement(volumes=tuple(volumes), mounts=tuple(mounts))
