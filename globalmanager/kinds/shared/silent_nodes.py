"""Pods whose node is silent for Kubernetes, and what the LocalController of the node says instead.

A kubelet without contact leaves the last status of its pods in the Kubernetes API. The node
controller marks these pods, and changes nothing else of their status.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from edgeai.api.deletions import is_confirmed
from edgeai.api.pod_state import is_active, node_of, phase_of
from edgeai.api.resources import Object
from edgeai.api.status import condition_of, parse_time, worker_entries
from edgeai.ids import NodeName
from globalmanager.contract import Observed
from globalmanager.kinds.shared import status

NODE_NOT_READY: Final = "NodeNotReady"
_TERMINAL_PHASES: Final = ("Succeeded", "Failed")
_BY_NODE_CONTROLLER: Final = ("", NODE_NOT_READY, "NodeLost")


def silent_since(pod: Object) -> datetime | None:
    """Since when the kubelet of a running pod has no contact; None when it has contact.

    The node controller then sets the condition Ready to False. It leaves the reason and
    ContainersReady as they were. A kubelet itself always gives a reason.
    """
    # A pod that has ended stays as it is, with or without its node.
    if phase_of(pod) in _TERMINAL_PHASES:
        return None
    ready = condition_of(pod, "Ready")
    is_marked = (
        ready.get("status") in ("False", "Unknown")
        and str(ready.get("reason") or "") in _BY_NODE_CONTROLLER
        and condition_of(pod, "ContainersReady").get("status") != "False"
    )
    if not is_marked and phase_of(pod) != "Unknown":
        return None
    mark, creation = ready.get("lastTransitionTime"), pod["metadata"].get("creationTimestamp")
    # A mark without a time counts from the beginning of the pod, so that the grace time ends.
    return parse_time(mark) or parse_time(creation)


def has_quota(observed: Observed, pod: Object, *, is_suspended: bool) -> bool:
    """Whether the pod counts as active in the numbers of its job. A queue gives the quota of a
    suspended job to others as soon as no pod of the job does.
    """
    if is_active(pod):
        return True
    is_over = phase_of(pod) in _TERMINAL_PHASES or is_confirmed(pod)
    if is_over or not is_suspended:
        return False
    # A node out of contact lets the processes run on without a limit. The cloud notices the loss of
    # a line late, so every node with a LocalController counts.
    is_edge = NodeName(node_of(pod)) in observed.contacts or bool(last_report(observed, pod))
    return is_edge or silent_since(pod) is not None


def is_in_session(observed: Observed, pod: Object) -> bool:
    """Whether the LocalController of the pod's node has a session."""
    # The LocalController has a line of its own, beside that of the kubelet (decision 0020).
    contact = observed.contacts.get(NodeName(node_of(pod)))
    return contact is not None and contact.connected


def last_report(observed: Observed, pod: Object) -> Mapping[str, Any]:
    """The entry of .status.workers that the node of the pod reported; empty without a report."""
    node = node_of(pod)
    entries = worker_entries(status.status_of(observed)).values()
    # By the node: a worker's name depends on whether Kubernetes or the user chose its node.
    return next((entry for entry in entries if entry.get("node") == node), {})
