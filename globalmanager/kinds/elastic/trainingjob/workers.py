"""The workers of a TrainingJob: pods with headless Services, and the SSH key that all pods share.

A worker does nothing by itself. The launcher starts processes on it, by ssh or `exec` of the API.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from edgeai.api.elastic import (
    GROUP,
    LABEL_GROUP,
    LABEL_INDEX,
    LABEL_JOB,
    LABEL_ROLE,
    LABEL_SCALE_OUT,
    WORKER,
)
from edgeai.api.objects import NOT_MANAGED
from edgeai.api.resources import PODS, SERVICES, Object
from edgeai.api.trainingjob import AttachMode
from edgeai.ids import Uid
from globalmanager.contract import Create, Observed
from globalmanager.kinds.elastic.trainingjob.spec import TrainingJob
from globalmanager.kinds.shared import children, pods
from globalmanager.kinds.shared.attempts import OPERATOR_NAME
from globalmanager.kinds.shared.replication import index_of, replica_labels
from globalmanager.kinds.shared.secrets import worker_secret
from globalmanager.kinds.shared.storage import Placement

# The ports of the et-operator's Services. sshd listens on the first one.
PORTS: Final = {"ssh-port": 22, "kubeai-service-port": 9009}
_SSH_DIRECTORY: Final = "/root/.ssh"
_SSH_VOLUME: Final = "edgeai-ssh"
# Of a label's value. The name of a ScaleOut may be longer.
_MAX_LABEL_CHARS: Final = 63
# ssh refuses a key that others may read.
_PRIVATE: Final = 0o600
# The pods of a job are new machines each time, so nobody can know their host keys before.
_SSH_CONFIG: Final = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
# As in the et-operator, with its two spaces.
_COMMANDS: Final = {
    AttachMode.SSH: ["sh", "-c", "/usr/sbin/sshd  && sleep 365d"],
    AttachMode.KUBEXEC: ["sh", "-c", "sleep 365d"],
}

# The last parts exclude the children that the Kubeflow operators made for other jobs.
_OF_ET_OPERATOR: Final = f"{LABEL_JOB},{NOT_MANAGED},{LABEL_GROUP}!=kubeflow.org,!{OPERATOR_NAME}"
FOLLOWS: Final = {PODS: (_OF_ET_OPERATOR,), SERVICES: (_OF_ET_OPERATOR,)}
"""Type -> label selectors of the children that the et-operator made."""


def labels(job: str, role: str) -> dict[str, str]:
    """The labels by which users of the et-operator select the pods of a role."""
    return {LABEL_GROUP: GROUP, LABEL_JOB: job, LABEL_ROLE: role}


def has_own_secret(spec: TrainingJob) -> bool:
    """Whether the job gets a Secret with an SSH key."""
    return spec.attach_mode is AttachMode.SSH and not spec.ssh_secret


def ssh_secret(observed: Observed) -> Create:
    """The Secret with the SSH key. Takes milliseconds."""
    job = observed.ref
    texts = ssh_key_files(observed.settings.root_key, observed.uid, f"{job.namespace}/{job.name}")
    return children.secret(observed, name=job.name, role="ssh", values=texts)


def ssh_key_files(root_key: bytes, uid: Uid, comment: str) -> dict[str, str]:
    """The files of ~/.ssh with the key pair of a job: file name -> content. Takes milliseconds.

    Args: comment: the name of the key, for people
    """
    # Only a cluster with TrainingJobs needs the library, which takes 10 MiB of memory.
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    # Every GlobalManager computes the same key, so a deleted Secret comes back as pods have it.
    seed = bytes.fromhex(worker_secret(root_key, uid, "ssh-key"))
    key = Ed25519PrivateKey.from_private_bytes(seed)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    line = f"{public.decode()} {comment}\n"
    return {
        # ssh looks for a key under this name by itself, of whatever kind the key is.
        "id_rsa": private.decode(),
        "id_rsa.pub": line,
        "authorized_keys": line,
        "config": _SSH_CONFIG,
    }


def ssh_files(observed: Observed, spec: TrainingJob) -> Placement:
    if spec.attach_mode is not AttachMode.SSH:
        return Placement()
    secret = {"secretName": spec.ssh_secret or observed.ref.name, "defaultMode": _PRIVATE}
    return Placement(
        volumes=({"name": _SSH_VOLUME, "secret": secret},),
        mounts=({"name": _SSH_VOLUME, "mountPath": _SSH_DIRECTORY},),
    )


def services(observed: Observed, names: Iterable[str]) -> Iterator[Create]:
    job = observed.ref.name
    for name in names:
        index = index_of(job, WORKER, name)
        assert index is not None  # the table has only names of workers
        # As the et-operator, so each of the two can go on with the other's Services and pods.
        selector = {**labels(job, WORKER), LABEL_INDEX: str(index)}
        yield children.service(
            observed,
            name=name,
            role=WORKER,
            ports=PORTS,
            selector=selector,
            labels=selector,
            headless=True,
        )


def are_too_large(observed: Observed, spec: TrainingJob, count: int) -> bool:
    """Whether this number of workers exceeds the size limit of a job."""
    return count * spec.worker_bytes > observed.settings.job_template_bytes


def pod(observed: Observed, spec: TrainingJob, name: str, scale_out: str = "") -> Create:
    """The pod of one worker. Args: scale_out: the name of the ScaleOut that adds the worker"""
    job = observed.ref.name
    index = index_of(job, WORKER, name)
    assert index is not None  # the table has only names of workers
    template = pods.build(
        observed,
        _with_command(spec),
        role=WORKER,
        data=ssh_files(observed, spec),
        labels={
            **replica_labels(WORKER, index),
            **labels(job, WORKER),
            LABEL_INDEX: str(index),
            **({LABEL_SCALE_OUT: _label(scale_out)} if scale_out else {}),
        },
        # A worker that ends gets a successor with a new index from the plan, never a new start.
        restart_policy="Never",
    )
    return children.pod(observed, name=name, role=WORKER, template=template, is_kept=True)


def _label(name: str) -> str:
    # A label's value ends with a letter or a digit.
    return name[:_MAX_LABEL_CHARS].rstrip("-.")


def _with_command(spec: TrainingJob) -> Object:
    """The template, in which the first container has a command."""
    template = spec.worker
    first, *others = template["spec"]["containers"]
    # The command of an image may end, and a worker has to wait for the launcher.
    if not first.get("command"):
        first = {**first, "command": _COMMANDS[spec.attach_mode]}
    return {**template, "spec": {**template["spec"], "containers": [first, *others]}}


def present(observed: Observed) -> dict[str, Object]:
    """The worker pods of the job: name -> pod."""
    job = observed.ref.name
    return {
        ref.name: pod
        for ref, pod in observed.children.items()
        if ref.type == PODS and index_of(job, WORKER, ref.name) is not None
    }
