"""The state of a pod as its own status says it.

Total: a pod status with missing or odd fields gives a default, never an exception.
"""

from collections.abc import Mapping
from typing import Any, Final

from globalmanager.contract import Object
from globalmanager.rules import status
from globalmanager.rules.objects import is_being_deleted
from globalmanager.rules.status import mapping, mappings

OWN_DEADLINE: Final = "DeadlineExceeded"
"""Reason of a pod that ran longer than activeDeadlineSeconds of its own template."""


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
    return (
        reason not in (None, "")
        or status.condition_of(pod, "DisruptionTarget").get("status") == "True"
    )


def running_since(pod: Object, container: str) -> Any:
    """The time since which the container runs, as its node says; None when it does not run."""
    found = (
        mapping(mapping(entry.get("state")).get("running")).get("startedAt")
        for entry in container_states(mapping(pod.get("status")))
        if entry.get("name") == container
    )
    return next(found, None)


def node_of(pod: Object) -> str:
    return str(mapping(pod.get("spec")).get("nodeName", ""))


def container_states(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        entry
        for field in ("initContainerStatuses", "containerStatuses")
        for entry in mappings(state.get(field))
    ]
