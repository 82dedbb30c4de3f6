"""Computes the status of a pod from the records of its containers. Pure.

States, phases, reasons and messages are those of Kubernetes' kubelet, for kubectl and others.
"""

from collections.abc import Mapping, Sequence
from typing import Self

import msgspec

from edgeai.localcluster.objects.resources import Object

LOST_EXIT_CODE = 137  # Kubernetes' exit code of a container that vanished
DEADLINE_REASON = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


class ContainerRecord(
    msgspec.Struct,
    rename={"image_id": "imageID", "container_id": "containerID"}
    | {"restart_count": "restartCount", "last_state": "lastState"},
):
    """The state of one container: its entry in containerStatuses."""

    name: str
    image: str
    state: Object = msgspec.field(default_factory=lambda: waiting("ContainerCreating"))
    last_state: Object = {}
    restart_count: int = 0
    ready: bool = False
    image_id: str = ""
    container_id: str = ""

    @classmethod
    def restored(cls, container: Object, status: Object | None) -> Self:
        """Args: status: the entry in containerStatuses; None gives a new record"""
        own = {"name": container["name"], "image": str(container.get("image", "")), "ready": False}
        return msgspec.convert((status or {}) | own, cls)

    @property
    def exit_code(self) -> int | None:
        """Exit code of a terminated container; None while the container waits or runs."""
        end = self.state.get("terminated")
        return None if end is None else int(end["exitCode"])

    @property
    def next_run(self) -> int:
        """Number of the container's next run: the restart_count during this run."""
        has_run = bool(self.last_state) or "terminated" in self.state
        return self.restart_count + (1 if has_run else 0)

    def run(self, state: Object, container_id: str) -> None:
        self.restart_count = self.next_run
        self.enter(state)
        self.container_id = container_id

    def end(self, state: Object) -> None:
        self.state = state
        self.ready = False

    def enter(self, state: Object) -> None:
        """Record that the container waits or runs. An ended run becomes `last_state`."""
        if "terminated" in self.state:
            self.last_state = self.state
        self.state = state
        self.ready = False

    def status(self) -> Object:
        entry: Object = msgspec.to_builtins(self)
        return entry | {"started": "running" in self.state}


def waiting(reason: str, message: str = "") -> Object:
    return {"waiting": {"reason": reason} | ({"message": message} if message else {})}


def running(started_at: str) -> Object:
    return {"running": {"startedAt": started_at}}


def terminated(
    exit_code: int,
    *,
    started_at: str,
    finished_at: str,
    container_id: str = "",
    reason: str = "",
    message: str = "",
) -> Object:
    """Args: exit_code: 128 + the signal's number if a signal ended the process"""
    detail: Object = {
        "exitCode": exit_code,
        "reason": reason or ("Completed" if exit_code == 0 else "Error"),
        "startedAt": started_at,
        "finishedAt": finished_at,
        "containerID": container_id,
    }
    if 128 < exit_code < 128 + 65 and not reason:
        detail["signal"] = exit_code - 128
    return {"terminated": detail | ({"message": message} if message else {})}


def pod_status(
    pod: Object,
    facts: Object,
    inits: Sequence[ContainerRecord],
    containers: Sequence[ContainerRecord],
    now: str,
    *,
    is_expired: bool = False,
) -> Object:
    """The whole status of a pod. Unchanged conditions keep their transition time.

    Args:
        facts: the part that is fixed before containers run: addresses and start time
        is_expired: activeDeadlineSeconds has passed, so the pod fails when no container runs
    """
    policy = str(pod["spec"].get("restartPolicy", "Always"))
    is_cut_short = is_expired and not any(
        "running" in record.state for record in (*inits, *containers)
    )
    phase = "Failed" if is_cut_short else pod_phase(policy, inits, containers)
    before = {
        condition["type"]: condition for condition in pod.get("status", {}).get("conditions") or []
    }
    conditions = _conditions(phase, inits, containers)
    status: Object = {
        "phase": phase,
        "conditions": [_dated(condition, before, now) for condition in conditions],
        **facts,
        "qosClass": "BestEffort",
        "containerStatuses": [record.status() for record in containers],
    }
    if is_cut_short:
        status |= {"reason": DEADLINE_REASON, "message": DEADLINE_MESSAGE}
    if inits:
        status["initContainerStatuses"] = [record.status() for record in inits]
    return status


def pod_phase(
    policy: str, inits: Sequence[ContainerRecord], containers: Sequence[ContainerRecord]
) -> str:
    """The phase of a pod: Pending, Running, Succeeded or Failed.

    Source: Kubernetes' documentation of the pod lifecycle.
    """
    if any(record.exit_code and not should_restart(policy, record.exit_code) for record in inits):
        return "Failed"
    if any(record.exit_code != 0 for record in inits):
        return "Pending"
    if any("waiting" in record.state and not record.last_state for record in containers):
        return "Pending"
    codes = [record.exit_code for record in containers]
    if any(code is None or should_restart(policy, code) for code in codes):
        return "Running"
    return "Succeeded" if not any(codes) else "Failed"


def _conditions(
    phase: str, inits: Sequence[ContainerRecord], containers: Sequence[ContainerRecord]
) -> list[Object]:
    incomplete = [record.name for record in inits if record.exit_code != 0]
    unready = [record.name for record in containers if not record.ready]
    ready = _readiness(phase, unready)
    return [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Initialized"} | _initialized(phase, incomplete),
        {"type": "ContainersReady"} | ready,
        {"type": "Ready"} | ready,
    ]


def _initialized(phase: str, incomplete: Sequence[str]) -> Object:
    if not incomplete:
        return {"status": "True"} | ({"reason": "PodCompleted"} if phase == "Succeeded" else {})
    message = f"containers with incomplete status: [{' '.join(incomplete)}]"
    return {"status": "False", "reason": "ContainersNotInitialized", "message": message}


def _readiness(phase: str, unready: Sequence[str]) -> Object:
    if phase == "Succeeded":
        return {"status": "False", "reason": "PodCompleted"}
    if phase == "Failed":
        return {"status": "False", "reason": "PodFailed"}
    if not unready:
        return {"status": "True"}
    message = f"containers with unready status: [{' '.join(unready)}]"
    return {"status": "False", "reason": "ContainersNotReady", "message": message}


def _dated(condition: Object, before: Mapping[str, Object], now: str) -> Object:
    old = before.get(condition["type"])
    is_same = old is not None and old["status"] == condition["status"]
    return condition | {
        "lastProbeTime": None,
        "lastTransitionTime": old["lastTransitionTime"] if old and is_same else now,
    }


def should_restart(policy: str, exit_code: int) -> bool:
    """Args: policy: Always, OnFailure or Never"""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
