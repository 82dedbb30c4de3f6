"""Decides the state of a worker from its pod. Pure.

A pod counts for a worker only if the pod's controller belongs to the worker's job; the pod's
namespace and node must be right already.
"""

from typing import Final, NamedTuple

import msgspec

from common import wire
from common.wire import WorkerStatus
from edgeai.ids import Uid, WorkerName
from edgeai.labels import LABEL_UID, LABEL_WORKER
from edgeai.text import printable
from localcontroller.ledger.outbox import WorkerKey

APPS: Final = "apps"
MAX_EXIT_CODES: Final = 16  # containers of one pod whose exit codes are reported
POD_OWNERS: Final = frozenset({"ReplicaSet", "Deployment"})  # Deployment: local cluster only


class _Terminated(msgspec.Struct, frozen=True, rename="camel"):
    exit_code: int = 0
    reason: str = ""


class _Waiting(msgspec.Struct, frozen=True):
    reason: str = ""


class _ContainerState(msgspec.Struct, frozen=True):
    terminated: _Terminated | None = None
    waiting: _Waiting | None = None
    running: dict[str, object] | None = None


class _WorkerContainer(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()


class _WorkerPodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""
    container_statuses: list[_WorkerContainer] | None = None


class _Owner(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    uid: str
    api_version: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    creation_timestamp: str | None = ""
    labels: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str | None = ""
    restart_policy: str = "Always"


class WorkerPod(msgspec.Struct, frozen=True):
    """The fields of a worker's pod that this package reads; other fields are ignored."""

    metadata: _Metadata
    spec: _PodSpec = _PodSpec()
    status: _WorkerPodStatus = _WorkerPodStatus()

    @property
    def worker_key(self) -> WorkerKey | None:
        """The worker that the labels name. Any user can set labels, so labels prove nothing."""
        labels = self.metadata.labels or {}
        if LABEL_UID not in labels or LABEL_WORKER not in labels:
            return None
        return WorkerKey(Uid(labels[LABEL_UID]), WorkerName(labels[LABEL_WORKER]))

    def may_be_controlled_by(self, job: Uid) -> bool:
        """Whether the pod's controller is the job, or a ReplicaSet or Deployment.

        The owner of a ReplicaSet is not checked: the LocalController may not read ReplicaSets.
        """
        controllers = [owner for owner in self.metadata.owner_references or () if owner.controller]
        return any(
            owner.uid == job
            or (owner.kind in POD_OWNERS and owner.api_version.startswith(f"{APPS}/"))
            for owner in controllers
        )


class Verdict(NamedTuple):
    """The state of a worker, judged by its pod."""

    status: WorkerStatus
    reason: str


def judge(pod: WorkerPod) -> Verdict | None:
    """The state of a worker, judged by its pod; None: the pod does not show the state yet.

    A pod that failed or succeeded never runs again, so the verdict is final. The kubelet may
    restart a container that ended, so the verdict on such a container is "lost", which is not
    final. A container that is done and need not run again says nothing: the pod ends once its
    sidecars and other containers have ended.
    """
    name, status = pod.metadata.name, pod.status
    containers = status.container_statuses or []
    if status.phase == "Failed":
        return Verdict("failed", f"pod {name} failed: {_failure(pod)}")
    if status.phase == "Succeeded":
        return Verdict("completed", f"pod {name} succeeded without a final message")
    for container in containers:
        end = _ended(container)
        is_done = end is not None and end.exit_code == 0 and pod.spec.restart_policy != "Always"
        if end is not None and not is_done:
            return Verdict("lost", f"pod {name}: {_describe(container.name, end)}")
    if containers and all(container.state.running is not None for container in containers):
        return Verdict("running", "")
    return None


def facts(pod: WorkerPod) -> dict[str, str]:
    """The details of a report: the pod's identity, and after its end all exit codes."""
    created_at = pod.metadata.creation_timestamp or ""
    identity = {wire.POD_UID: pod.metadata.uid, wire.POD_CREATED_AT: created_at}
    if pod.status.phase not in ("Succeeded", "Failed"):
        return identity
    codes = [
        f"{container.name}={container.state.terminated.exit_code}"
        for container in pod.status.container_statuses or []
        if container.state.terminated is not None
    ]
    details = {wire.EXIT_CODES: ",".join(codes[:MAX_EXIT_CODES])} if codes else {}
    return identity | details


def age(pod: WorkerPod) -> tuple[str, str]:
    """Sort key: the youngest pod sorts last."""
    return pod.metadata.creation_timestamp or "", pod.metadata.uid


def _ended(container: _WorkerContainer) -> _Terminated | None:
    """How the container ended; None while the container runs, also after a restart."""
    if container.state.terminated is not None:
        return container.state.terminated
    if container.state.waiting is not None:
        return container.last_state.terminated
    return None


def _failure(pod: WorkerPod) -> str:
    text = ": ".join(part for part in (pod.status.reason, pod.status.message) if part)
    ends = [
        _describe(container.name, container.state.terminated)
        for container in pod.status.container_statuses or []
        if container.state.terminated is not None and container.state.terminated.exit_code
    ]
    return printable("; ".join([*([text] if text else []), *ends])) or "no reason given"


def _describe(container: str, end: _Terminated) -> str:
    why = f" ({printable(end.reason)})" if end.reason else ""
    return f"container {container} exited with code {end.exit_code}{why}"
