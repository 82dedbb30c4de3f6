"""The state of a pod as its own status says it.

Total: a pod status with missing or odd fields gives a default, never an exception.
"""

from collections.abc import Mapping
from typing import Any, Final

from edgeai.api.objects import is_being_deleted
from edgeai.api.resources import Object
from edgeai.api.status import condition_of, mapping, mappings

OWN_DEADLINE: Final = "DeadlineExceeded"
"""Reason of a pod that ran longer than activeDeadlineSeconds of its own template."""


def phase_of(pod: Object) -> str:
    return str(mapping(pod.get("status")).get("phase", "Pending"))


def is_active(pod: Object) -> bool:
    """Whether the pod is neither finished nor being deleted. The controllers of Kubernetes use
    the same rule.
    """
    return phase_of(pod) not in ("Succeeded", "Failed") and not is_being_deleted(pod)


def is_ready(pod: Object) -> bool:
    """Whether the pod serves, and is not being deleted."""
    return condition_of(pod, "Ready").get("status") == "True" and not is_being_deleted(pod)


def is_disrupted(pod: Object) -> bool:
    """Whether the node or the cluster ended a failed pod: the pod was evicted or preempted, or its
    node was shut down, lost, or could not take the pod. Its own program has not failed.
    """
    reason = mapping(pod.get("status")).get("reason")
    if phase_of(pod) != "Failed" or reason == OWN_DEADLINE:
        return False
    return reason not in (None, "") or condition_of(pod, "DisruptionTarget").get("status") == "True"


def running_since(pod: Object, name: str) -> Any:
    """The time since which a container runs, as its node says; None when it does not run."""
    for container in container_states(pod):
        if container.get("name") == name:
            return mapping(mapping(container.get("state")).get("running")).get("startedAt")
    return None


def node_of(pod: Object) -> str:
    return str(mapping(pod.get("spec")).get("nodeName", ""))


def sidecar_names(pod: Object) -> frozenset[str]:
    """The native sidecars of a pod: init containers that run beside its containers.

    Source: Kubernetes, KEP-753. The node stops them when the containers have ended, so their end
    says nothing about the pod.
    """
    containers = mappings(mapping(pod.get("spec")).get("initContainers"))
    return frozenset(
        str(container.get("name", ""))
        for container in containers
        if container.get("restartPolicy") == "Always"
    )


def container_states(pod: Object) -> list[Mapping[str, Any]]:
    """What the node says of each container, the init containers first."""
    state = mapping(pod.get("status"))
    return [
        *mappings(state.get("initContainerStatuses")),
        *mappings(state.get("containerStatuses")),
    ]


def telling_states(pod: Object) -> list[Mapping[str, Any]]:
    """The states of the containers whose ends say something. After the end of the last container
    the node stops the sidecars.
    """
    states = container_states(pod)
    sidecars = sidecar_names(pod)
    works = [state for state in states if state.get("name") not in sidecars]
    has_ended = all("terminated" in mapping(state.get("state")) for state in works)
    return works if works and has_ended else states
