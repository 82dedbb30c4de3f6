"""The faults of one container of a pod: it does not start, or it has crashed."""

import math
import signal
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from edgeai.api.pod_state import phase_of
from edgeai.api.resources import Object
from edgeai.api.status import count_of, left_s, mapping, parse_time
from edgeai.faults.faults import Fault, pod_fault

PENDING_S: Final = 60.0
"""Seconds after which a pod that does not start, for no reason that anybody says, is a fault."""
LOOP_RUN_S: Final = 600.0
"""Seconds after which a container is in no crash loop; the kubelet forgets earlier ends, too."""
_RECOVERED_S: Final = 30.0
"""Least number of seconds that a container must run after a crash to count as recovered."""
CRASH_LOOP: Final = "CrashLoopBackOff"
NODE_RESTARTED: Final = "NodeRestarted"
# A kubelet says these words of every pod at first, so alone they are no fault.
COMING_UP: Final = frozenset({"ContainerCreating", "PodInitializing"})


def container_fault(
    pod: Object, container: Mapping[str, Any], now: datetime | None
) -> Fault | None:
    """The fault of a container; None without one.

    Args:
        container: its entry in the status of the pod
        now: UTC. None: only what the node itself calls a fault
    """
    state = mapping(container.get("state"))
    wait, end = mapping(state.get("waiting")), mapping(state.get("terminated"))
    last_end = mapping(mapping(container.get("lastState")).get("terminated"))
    is_loop = wait.get("reason") == CRASH_LOOP
    # Before all else: after a reboot, a kubelet reports exit code 255 of what ran before. The
    # program has not failed, and correcting it would not help.
    for loss in (end, last_end if is_loop else {}):
        if _is_lost_by_node(loss):
            return _node_restart(pod, container, loss, now)
    # The kubelet's words about a loop name only the delay. The last end says why.
    if is_loop and last_end:
        return _crash(pod, container, last_end)
    if wait and str(wait.get("reason")) not in COMING_UP:
        return _wait_fault(pod, container, wait, last_end)
    # A container that has ended well is done, as an init container is.
    if end and end.get("exitCode") != 0:
        return _crash(pod, container, end)
    is_failure = bool(last_end) and last_end.get("exitCode") != 0 and not _is_lost_by_node(last_end)
    runs_again = "running" in state and count_of(container.get("restartCount")) > 0
    if runs_again and is_failure:
        loop_left_s = _loop_left_s(mapping(state["running"]), last_end, now)
        if loop_left_s > 0:
            return _crash(pod, container, last_end, ends_in_s=loop_left_s)
    return None


def _is_lost_by_node(end: Mapping[str, Any]) -> bool:
    """Whether the node does not know the end. containerd says so after the node went down."""
    return (end.get("exitCode"), end.get("reason")) == (255, "Unknown")


def _node_restart(
    pod: Object, container: Mapping[str, Any], loss: Mapping[str, Any], now: datetime | None
) -> Fault:
    """The fault of a container that went down with its node, unless the node may start it again."""
    name = _name(container)
    detail = f"the node has lost container {name}, as when it restarts"
    # Nothing starts a container of a failed pod again, so there is no reason to wait.
    if phase_of(pod) == "Failed":
        return pod_fault(pod, NODE_RESTARTED, detail, name)
    detail += ", and has not started it again"
    # A node that comes up starts its containers again by itself, so the fault begins later.
    begins_in_s = left_s(loss.get("finishedAt"), PENDING_S, now)
    return pod_fault(pod, NODE_RESTARTED, detail, name, begins_in_s=begins_in_s)


def _wait_fault(
    pod: Object, container: Mapping[str, Any], wait: Mapping[str, Any], last_end: Mapping[str, Any]
) -> Fault:
    reason = wait.get("reason") or "Waiting"
    if reason == "ErrImagePull":
        reason = "ImagePullBackOff"  # a node that cannot pull an image shows the two in turn
    name = _name(container)
    end = f" ({_end_text(last_end)})" if last_end else ""
    return pod_fault(pod, reason, f"container {name}: {wait.get('message', '')}{end}", name)


def _crash(
    pod: Object,
    container: Mapping[str, Any],
    end: Mapping[str, Any],
    *,
    ends_in_s: float = math.inf,
) -> Fault:
    """The fault of a container whose last process has failed. It is the same fault while the node
    waits with the next start, and in the first seconds after it.
    """
    reason = str(end.get("reason") or "Error")
    policy = mapping(pod.get("spec")).get("restartPolicy", "Always")
    # One word for the pause and the moments after it: two would change the condition each time.
    if reason == "Error" and phase_of(pod) != "Failed" and policy != "Never":
        reason = CRASH_LOOP
    name = _name(container)
    fault = pod_fault(pod, reason, f"container {name} ended with {_end_text(end)}", name)
    return msgspec.structs.replace(
        fault,
        subject=fault.message,
        restarts=count_of(container.get("restartCount")),
        # The last words of the crash are then in the log of the run before.
        is_previous="terminated" not in mapping(container.get("state")),
        ends_in_s=ends_in_s,
    )


def _end_text(end: Mapping[str, Any]) -> str:
    """For example "exit code 137 (SIGKILL): no space left"."""
    code, reason = end.get("exitCode"), end.get("reason")
    detail = str(end.get("message") or "").strip() or str(reason or "no message")
    # A runtime reports a process that a signal has ended as 128 and the number of the signal.
    name = _SIGNALS.get(code - 128) if type(code) is int else None
    return f"exit code {code} ({name}): {detail}" if name else f"exit code {code}: {detail}"


_SIGNALS: Final = {int(number): number.name for number in signal.Signals}


def _name(container: Mapping[str, Any]) -> str:
    return str(container.get("name", ""))


def _loop_left_s(
    running: Mapping[str, Any], last_end: Mapping[str, Any], now: datetime | None
) -> float:
    """Seconds until a container counts as recovered: after twice the time before its crash."""
    start, end = parse_time(last_end.get("startedAt")), parse_time(last_end.get("finishedAt"))
    run_s = (end - start).total_seconds() if start and end else 0.0
    if now is None or run_s >= LOOP_RUN_S:
        return 0.0
    # A program that crashes after a minute each time is not well after ten seconds.
    limit_s = min(max(2 * run_s, _RECOVERED_S), LOOP_RUN_S)
    rest_s = left_s(running.get("startedAt"), limit_s, now)
    return rest_s if rest_s <= 2 * limit_s else 0.0  # the clock of the node is ahead
