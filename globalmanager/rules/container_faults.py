"""The faults of one container of a pod: it does not start, or it has crashed."""

import math
import signal
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from globalmanager.contract import Object
from globalmanager.rules import status
from globalmanager.rules.faults import Fault, pod_fault
from globalmanager.rules.pod_state import phase_of
from globalmanager.rules.status import mapping, parse_time

PENDING_S: Final = 60.0
"""Seconds after which a pod that does not start is a fault, when nobody says why it does not start.
Most pods start sooner."""
LOOP_RUN_S: Final = 600.0
"""Seconds. A container that runs longer is not in a crash loop: the kubelet, too, forgets the
earlier ends of a container after this time."""
_RECOVERED_S: Final = 30.0
"""Least number of seconds that a container must run after a crash to count as recovered."""
CRASH_LOOP: Final = "CrashLoopBackOff"
NODE_RESTARTED: Final = "NodeRestarted"
COMING_UP: Final = frozenset({"ContainerCreating", "PodInitializing"})


def of_container(pod: Object, entry: Mapping[str, Any], now: datetime | None) -> Iterator[Fault]:
    state = mapping(entry.get("state"))
    waiting, ended = mapping(state.get("waiting")), mapping(state.get("terminated"))
    last = mapping(mapping(entry.get("lastState")).get("terminated"))
    is_loop = waiting.get("reason") == CRASH_LOOP
    lost = next((end for end in (ended, last if is_loop else {}) if _is_lost_by_node(end)), None)
    if lost is not None:
        yield _node_restarted(pod, entry, lost, now)
    elif is_loop and last:
        yield _crash(pod, entry, last)
    elif waiting and str(waiting.get("reason")) not in COMING_UP:
        yield _not_started(pod, entry, waiting, last)
    elif ended and ended.get("exitCode") != 0:
        yield _crash(pod, entry, ended)
    elif _has_crashed_before(entry, last):
        left_s = _loop_left_s(mapping(state["running"]), last, now)
        if left_s > 0:
            yield _crash(pod, entry, last, ends_in_s=left_s)


def _has_crashed_before(entry: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
    """Whether the container runs again, and its last process has failed by itself."""
    is_running_again = "running" in mapping(entry.get("state")) and _restarts(entry) > 0
    is_failure = bool(last) and last.get("exitCode") != 0
    return is_running_again and is_failure and not _is_lost_by_node(last)


def _is_lost_by_node(terminated: Mapping[str, Any]) -> bool:
    """Whether the node does not know how the container ended. containerd says so of a container
    that ran when the node went down.
    """
    return (terminated.get("exitCode"), terminated.get("reason")) == (255, "Unknown")


def _node_restarted(
    pod: Object, entry: Mapping[str, Any], lost: Mapping[str, Any], now: datetime | None
) -> Fault:
    """The fault of a container that went down with its node: none while the node may start the
    container again, where the pod goes on.
    """
    name = str(entry.get("name", ""))
    detail = f"the node has lost container {name}, as when it restarts"
    if phase_of(pod) == "Failed":
        return pod_fault(pod, NODE_RESTARTED, detail, name)
    left_s = time_left_s(lost.get("finishedAt"), PENDING_S, now)
    detail += ", and has not started it again"
    return pod_fault(pod, NODE_RESTARTED, detail, name, begins_in_s=left_s)


def _not_started(
    pod: Object, entry: Mapping[str, Any], waiting: Mapping[str, Any], last: Mapping[str, Any]
) -> Fault:
    reason = waiting.get("reason") or "Waiting"
    if reason == "ErrImagePull":
        reason = "ImagePullBackOff"  # a node that cannot pull an image tells the two in turn
    name = str(entry.get("name", ""))
    end = f" ({_end(last)})" if last else ""
    return pod_fault(pod, reason, f"container {name}: {waiting.get('message', '')}{end}", name)


def _crash(
    pod: Object, entry: Mapping[str, Any], last: Mapping[str, Any], *, ends_in_s: float = math.inf
) -> Fault:
    """The fault of a container whose last process has failed. It is the same fault while the node
    waits with the next start, and in the first seconds after it.
    """
    why = str(last.get("reason") or "Error")
    policy = mapping(pod.get("spec")).get("restartPolicy", "Always")
    is_loop = phase_of(pod) != "Failed" and policy != "Never"
    reason = CRASH_LOOP if is_loop and why == "Error" else why
    name = str(entry.get("name", ""))
    found = pod_fault(pod, reason, f"container {name} ended with {_end(last)}", name)
    return msgspec.structs.replace(
        found,
        subject=found.message,
        restarts=_restarts(entry),
        is_previous="terminated" not in mapping(entry.get("state")),
        ends_in_s=ends_in_s,
    )


def _end(terminated: Mapping[str, Any]) -> str:
    """ "exit code 137 (SIGKILL): no space left"; the argument is a field of a state."""
    code, reason = terminated.get("exitCode"), terminated.get("reason")
    detail = str(terminated.get("message") or "").strip() or str(reason or "no message")
    name = ""
    if type(code) is int and 128 < code < 128 + signal.NSIG:
        name = f" ({_SIGNALS[code - 128]})" if code - 128 in _SIGNALS else ""
    return f"exit code {code}{name}: {detail}"


_SIGNALS: Final = {int(each): each.name for each in signal.Signals}


def _restarts(entry: Mapping[str, Any]) -> int:
    number = entry.get("restartCount")
    return number if type(number) is int and 0 < number < 10**9 else 0


def _loop_left_s(
    running: Mapping[str, Any], last: Mapping[str, Any], now: datetime | None
) -> float:
    """Seconds until a container that runs again after a crash counts as recovered: it must run
    twice as long as before its crash.
    """
    began, ended = parse_time(last.get("startedAt")), parse_time(last.get("finishedAt"))
    ran_s = (ended - began).total_seconds() if began and ended else 0.0
    if now is None or ran_s >= LOOP_RUN_S:
        return 0.0
    needed_s = min(max(2 * ran_s, _RECOVERED_S), LOOP_RUN_S)
    left_s = time_left_s(running.get("startedAt"), needed_s, now)
    return left_s if left_s <= 2 * needed_s else 0.0  # the clock of the node is ahead


def time_left_s(since: Any, limit_s: float, now: datetime | None) -> float:
    """Seconds from `now` until `limit_s` after `since`; infinite when a time is not known."""
    left = None if now is None else status.left_s(since, limit_s, now)
    return math.inf if left is None else left
