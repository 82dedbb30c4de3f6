"""The pods of an elastic job that wait for room in the cluster, and how its status tells them.

A pod that pends is the queue: the scheduler of the cluster starts the pod when there is room.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from edgeai.api import pod_state
from edgeai.api.pod_state import node_of, phase_of
from edgeai.api.resources import Object
from edgeai.faults import pod_faults
from globalmanager.contract import Observed
from globalmanager.kinds.shared import status


def has_room(pod: Object) -> bool:
    """Whether the pod has a node, and nothing keeps it from running there."""
    is_coming_up = phase_of(pod) != "Pending" or pod_faults.first_fault([pod]) is None
    return pod_state.is_active(pod) and bool(node_of(pod)) and is_coming_up


def is_queued(pod: Object) -> bool:
    """Whether no scheduler has found a node for the pod yet."""
    return phase_of(pod) == "Pending" and not node_of(pod)


def forgotten(observed: Observed) -> dict[str, Any]:
    """The field elastic of .status of a job that has no replicas, or that is not elastic."""
    # A merge patch keeps a field that it does not name, so the earlier numbers would stay.
    return {"elastic": None} if "elastic" in status.status_of(observed) else {}


def waiting_reason(pods: Iterable[Object], current: Mapping[str, Any]) -> dict[str, str]:
    """`reason` and `message` of .status.elastic: why the first of these pods does not run.

    A scheduler changes the numbers in its message as other pods come and go. So the message stays
    while the pod and the reason do, else a full cluster would cause a write for each of its pods.

    Args: current: .status.elastic as it was last written
    """
    fault = pod_faults.first_fault(pods)
    if fault is None:
        return {}
    pod = fault.message.partition(":")[0]
    before = str(current.get("message", ""))
    is_same = current.get("reason") == fault.reason and before.partition(":")[0] == pod
    return {"reason": fault.reason, "message": before if is_same else fault.message}
