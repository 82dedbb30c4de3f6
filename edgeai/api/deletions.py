"""A pod that is being deleted: when its deletion began, how late it is, and why it is still there.

A kubelet confirms the end of a pod by a second deletion without a grace period. A pod with
finalizers stays after that, until the controllers of the finalizers remove them. Pure and total.
"""

import math
from datetime import datetime, timedelta
from typing import Final

from edgeai.api.objects import is_being_deleted
from edgeai.api.resources import Object
from edgeai.api.status import left_s, parse_time

TERMINATING: Final = "Terminating"
"""Reason of the fault of such a pod."""
OVERDUE_S: Final = 30.0
"""A pod that is still there this number of seconds after its grace period is a fault. Its node
counts as lost. The name of the pod is free only when the pod is gone."""
_MAX_NAMED: Final = 3  # finalizers in one message


def end_left_s(pod: Object, limit_s: float, now: datetime) -> float:
    """Seconds until `limit_s` after the deletion of the pod began; 0 when the time cannot be read.
    A deletion that begins later than in `limit_s` has the time of another clock, and the limit has
    passed.
    """
    start = pod["metadata"].get("deletionTimestamp")
    rest_s = left_s(start, limit_s - _grace_s(pod), now, unknown=0.0)
    return rest_s if rest_s <= 2 * limit_s else 0.0


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


def began(pod: Object) -> datetime | None:
    """When somebody asked for the deletion, by the clock of the API server. None: nobody did, or
    the time cannot be read.
    """
    end = parse_time(pod["metadata"].get("deletionTimestamp"))
    return None if end is None else end - timedelta(seconds=_grace_s(pod))


def why(pod: Object) -> str:
    """The cause alone. Total for any object of the API: what is no pod stays for its finalizers."""
    if not is_being_deleted(pod):
        return "the API server has not accepted its deletion"
    finalizers = pod["metadata"].get("finalizers")
    names = [str(name) for name in finalizers] if isinstance(finalizers, list) else []
    text = ", ".join(names[:_MAX_NAMED]) + ", …" * (len(names) > _MAX_NAMED)
    stays = f"has the finalizers {text} and stays until their controllers remove them"
    if names and is_confirmed(pod):
        return f"it {stays}"
    node = "its node has not confirmed its end"
    if names:
        return f"{node}, and it {stays}"
    return f"{node}; where the node is lost for good, delete the Node"
