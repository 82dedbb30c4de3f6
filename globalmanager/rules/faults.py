"""Why a pod does not run, in the words of the pod's own status.

Called by the kinds that start workers. Total: a pod status with missing fields gives a shorter
message, never an exception.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from common.text import printable
from globalmanager.contract import Object
from globalmanager.rules.objects import is_being_deleted
from globalmanager.rules.status import mapping

_COMING_UP: Final = frozenset({"ContainerCreating", "PodInitializing"})
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?\Z")
_DELAY: Final = re.compile(r"\bback-off \S+ ")  # the delay in this text grows with each try
_MAX_MESSAGE_CHARS: Final = 400
OWN_DEADLINE: Final = "DeadlineExceeded"
"""Reason of a pod that ran longer than activeDeadlineSeconds of its own template."""


class PodFault(msgspec.Struct, frozen=True):
    """Why a pod does not run. `reason` fits a condition. A pending fault may end by itself."""

    reason: str
    message: str
    is_pending: bool = False


def phase_of(pod: Object) -> str:
    return str(mapping(pod.get("status")).get("phase", "Pending"))


def is_active(pod: Object) -> bool:
    """Whether the pod is neither finished nor being deleted. The controllers of Kubernetes use
    the same rule.
    """
    return phase_of(pod) not in ("Succeeded", "Failed") and not is_being_deleted(pod)


def is_disrupted(pod: Object) -> bool:
    """Whether the node or the cluster ended a failed pod: the pod was evicted or preempted, or its
    node was shut down, lost, or could not take the pod. Its own program has not failed.
    """
    state = mapping(pod.get("status"))
    reason = state.get("reason")
    if phase_of(pod) != "Failed" or reason == OWN_DEADLINE:
        return False
    is_target = any(
        entry.get("type") == "DisruptionTarget" and entry.get("status") == "True"
        for entry in _entries(state.get("conditions"))
    )
    return reason not in (None, "") or is_target


def node_of(pod: Object) -> str:
    return str(mapping(pod.get("spec")).get("nodeName", ""))


def first_fault(pods: Iterable[Object]) -> PodFault | None:
    """The first fault among the pods that are not being deleted. Pending faults come last."""
    found = [fault for pod in pods if not is_being_deleted(pod) for fault in _faults(pod)]
    return min(found, key=lambda fault: fault.is_pending, default=None)


def _faults(pod: Object) -> Iterator[PodFault]:
    state = mapping(pod.get("status"))
    for entry in _containers(state):
        yield from _container_faults(pod, entry)
    if phase_of(pod) == "Failed":
        yield _fault(pod, state.get("reason") or "PodFailed", state.get("message", ""))
    for entry in _entries(state.get("conditions")):
        if entry.get("type") == "PodScheduled" and entry.get("status") == "False":
            reason = entry.get("reason") or "Unschedulable"
            yield _fault(pod, reason, entry.get("message", ""), is_pending=True)


def _containers(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        entry
        for field in ("initContainerStatuses", "containerStatuses")
        for entry in _entries(state.get(field))
    ]


def _entries(value: Any) -> list[Mapping[str, Any]]:
    return [mapping(entry) for entry in value] if isinstance(value, list) else []


def _container_faults(pod: Object, entry: Mapping[str, Any]) -> Iterator[PodFault]:
    state = mapping(entry.get("state"))
    waiting, ended = mapping(state.get("waiting")), mapping(state.get("terminated"))
    name = f"container {entry.get('name', '')}"
    if waiting and str(waiting.get("reason")) not in _COMING_UP:
        last = _exit_of_container(mapping(mapping(entry.get("lastState")).get("terminated")))
        detail = f"{name}: {waiting.get('message', '')}{last}"
        yield _fault(pod, waiting.get("reason") or "Waiting", detail)
    elif ended and ended.get("exitCode") != 0:
        yield _fault(pod, ended.get("reason") or "Error", name + _exit_of_container(ended))


def _exit_of_container(terminated: Mapping[str, Any]) -> str:
    """`terminated` is this field of a container's state in a pod's status; "" when it is empty."""
    if not terminated:
        return ""
    detail = terminated.get("message") or terminated.get("reason") or "no message"
    return f" (exit code {terminated.get('exitCode')}: {str(detail).strip()})"


def _fault(pod: Object, reason: Any, detail: Any, *, is_pending: bool = False) -> PodFault:
    word = str(reason)
    node = node_of(pod)
    place = f" on node {node}" if node else ""
    text = _DELAY.sub("back-off ", f"pod {pod['metadata']['name']}{place}: {word}: {detail}")
    reason = word if _REASON.match(word) else "PodFault"
    return PodFault(reason, printable(text)[:_MAX_MESSAGE_CHARS], is_pending)
