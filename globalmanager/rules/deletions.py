"""A pod that is being deleted: when its deletion began, how late it is, and why it is still there.

A kubelet confirms the end of a pod by a second deletion without a grace period. A pod with
finalizers stays after that, until the controllers of the finalizers remove them. Pure and total.
"""

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from common.text import printable
from globalmanager.contract import Object
from globalmanager.rules.faults import PodFault, node_of
from globalmanager.rules.lifecycle import Timers, left_s
from globalmanager.rules.objects import is_being_deleted

TERMINATING: Final = "Terminating"
"""Reason of a condition that tells of such a pod."""
OVERDUE_S: Final = 30.0
"""A pod that is still there this number of seconds after its grace period is told. Its node counts
as lost. The name of the pod is free only when the pod is gone."""
_MAX_NAMED: Final = 3  # finalizers in one message
_MAX_MESSAGE_CHARS: Final = 400


def left_of(pod: Object, limit_s: float, now: datetime) -> float:
    """Seconds until `limit_s` after the deletion of the pod began; 0 when no time can be read. A
    deletion that begins later than in `limit_s` has the time of another clock, and the limit has
    passed.
    """
    left = left_s(
        pod["metadata"].get("deletionTimestamp"), limit_s - _grace_s(pod), now, unknown=0.0
    )
    return left if left <= 2 * limit_s else 0.0


def _grace_s(pod: Object) -> int:
    grace = pod["metadata"].get("deletionGracePeriodSeconds")
    return grace if type(grace) is int and grace > 0 else 0


def overdue_in_s(pod: Object, now: datetime) -> float:
    """Seconds until the pod is overdue; infinite for a pod that nobody deletes."""
    if not is_being_deleted(pod):
        return math.inf
    return left_s(pod["metadata"]["deletionTimestamp"], OVERDUE_S, now, unknown=0.0)


def is_confirmed(pod: Object) -> bool:
    """Whether the pod has ended for its node, or was deleted by force, so only finalizers can keep
    it.
    """
    is_over = pod["metadata"].get("deletionGracePeriodSeconds") == 0
    return is_being_deleted(pod) and is_over


def first_overdue(pods: Iterable[Object], now: datetime) -> tuple[PodFault | None, Timers]:
    """(the fault of the first overdue pod, the waits until others are overdue)"""
    waits = [(pod, overdue_in_s(pod, now)) for pod in pods]
    late = (fault(pod) for pod, wait_s in waits if wait_s <= 0)
    return next(late, None), Timers().add(*(wait_s for _, wait_s in waits))


def fault(pod: Object) -> PodFault:
    """Why a pod that should be gone is still there."""
    node = node_of(pod)
    where = f" on node {node}" if node else ""
    message = f"pod {pod['metadata']['name']}{where}: {TERMINATING}: {why(pod)}"
    return PodFault(TERMINATING, printable(message)[:_MAX_MESSAGE_CHARS], is_pending=True)


def why(pod: Object) -> str:
    """The cause alone. Total for any object of the API: what is no pod stays for its finalizers."""
    if not is_being_deleted(pod):
        return "the API server has not accepted its deletion"
    listed = pod["metadata"].get("finalizers")
    names = [str(name) for name in listed] if isinstance(listed, list) else []
    shown = ", ".join(names[:_MAX_NAMED]) + ", …" * (len(names) > _MAX_NAMED)
    stays = f"has the finalizers {shown} and stays until their controllers remove them"
    if names and is_confirmed(pod):
        return f"it {stays}"
    node = "its node has not confirmed its end"
    if names:
        return f"{node}, and it {stays}"
    return f"{node}; where the node is lost for good, delete the Node"
