"""The faults of pods, in causal order: what is wrong, why, and what to do.

A fault has the words of the pod's own status. Total: a pod status with missing or odd fields gives
a shorter message, never an exception.
"""

import math
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from common.text import printable, shortened
from globalmanager.contract import Object
from globalmanager.rules import deletions, status
from globalmanager.rules.objects import LABEL_ROLE, is_being_deleted, label_of
from globalmanager.rules.remedies import REMEDIES, Cause, cause_of, remedy_of
from globalmanager.rules.status import Finding, Truth, mapping, parse_time

STALLED: Final = "Stalled"
"""The type of the condition that tells the faults of a job's workers."""
PENDING_S: Final = 60.0
"""Seconds after which a pod that does not start is a fault, when nobody says why it does not start.
Most pods start sooner."""
LOOP_RUN_S: Final = 600.0
"""Seconds. A container that runs longer is not in a crash loop: the kubelet, too, forgets the
earlier ends of a container after this time."""
_RECOVERED_S: Final = 30.0
"""Least number of seconds that a container must run after a crash to count as recovered."""
CRASH_LOOP: Final = "CrashLoopBackOff"
AWAITING_MASTER: Final = "AwaitingMaster"
MASTER_UNREACHABLE: Final = "MasterUnreachable"
NODE_RESTARTED: Final = "NodeRestarted"
MASTER_WAIT: Final = "init-pytorch"
"""Name of the init container with which a worker waits for its master, as in the Kubeflow
operator."""
OWN_DEADLINE: Final = "DeadlineExceeded"
"""Reason of a pod that ran longer than activeDeadlineSeconds of its own template."""
MAX_TOLD: Final = 3  # faults that one text names
_COMING_UP: Final = frozenset({"ContainerCreating", "PodInitializing"})
_ROLES_AHEAD: Final = frozenset({"master", "chief", "launcher", "aggregator", "cloud"})
"""Roles of workers that others of the job wait for."""
_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?\Z")
_DELAY: Final = re.compile(r"\bback-off \S+ ")  # the delay in this text grows with each try
_MAX_MESSAGE_CHARS: Final = 300


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a job or with one of its workers."""

    cause: Cause
    reason: str
    """Fits the reason of a condition."""
    message: str
    """Names the object and says what is wrong with it. The message has no number that grows."""
    subject: str = ""
    """The part of the message that tells this fault from another one with the same reason. The rest
    may change from one moment to the next, as the numbers of a scheduler do."""
    worker: str = ""
    """Name of the pod; "" for a fault of the whole job."""
    node: str = ""
    container: str = ""
    restarts: int = 0
    """How often the node has started the container again."""
    is_pending: bool = False
    """Whether the pod may still start, or answer again, without a change of the job."""
    begins_in_s: float = 0.0
    """Seconds until the fault counts, if nothing changes; 0 or less when it counts."""
    ends_in_s: float = math.inf
    """Seconds until the fault is over, if nothing changes."""
    is_previous: bool = False
    """Whether the container has another run since it crashed, or waits for one."""
    log: tuple[str, ...] = ()
    """The last lines that the container wrote, where somebody has read them."""

    @property
    def remedy(self) -> str:
        """What a person can do; "" when there is nothing to do."""
        return remedy_of(self.reason, self.message)

    @property
    def text(self) -> str:
        """The message with the number of restarts."""
        times = "once" if self.restarts == 1 else f"{self.restarts} times"
        return f"{self.message} (started again {times})" if self.restarts else self.message


def fault_of(reason: str, message: str) -> Fault:
    """A fault of the whole job. Args: message: "<what>: <why>" """
    text = printable(message)
    subject = text.partition(":")[0]
    return Fault(cause=cause_of(reason, text), reason=reason, message=text, subject=subject)


class Examination(NamedTuple):
    faults: tuple[Fault, ...]
    """Those that count now: the cause before its consequences, and of workers with the same cause
    first the one that the others wait for."""
    next_s: float
    """Seconds until a fault begins or ends although no pod changes; infinite when none does."""


NO_FAULTS: Final = Examination((), math.inf)


def examine(pods: Iterable[Object], now: datetime | None = None) -> Examination:
    """The faults of pods.

    Args: now: UTC. None: only what the pods themselves call a fault, however long they wait
    """
    ranked = [
        (fault.cause, _rank(pod), fault.worker, number, fault)
        for pod in pods
        for number, fault in enumerate(_faults(pod, now))
    ]
    found = [fault for *_, fault in sorted(ranked, key=lambda entry: entry[:4])]
    waits = [each for fault in found for each in (fault.begins_in_s, fault.ends_in_s) if each > 0]
    return Examination(
        tuple(fault for fault in found if fault.begins_in_s <= 0), min(waits, default=math.inf)
    )


def stalled(known: Mapping[str, Any], faults: Sequence[Fault]) -> Finding | None:
    """The condition Stalled of a job with these faults; None without faults.

    Args: known: the condition as it was last written. Its message stays while the faults do
    """
    if not faults:
        return None
    message, told = summary(faults), str(known.get("message", ""))
    is_same = known.get("reason") == faults[0].reason and is_same_summary(told, faults)
    return Finding(STALLED, Truth.TRUE, faults[0].reason, told if is_same else message)


def first_fault(pods: Iterable[Object], now: datetime | None = None) -> Fault | None:
    """The first fault of `examine`."""
    return next(iter(examine(pods, now).faults), None)


def in_order(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """The faults by their cause. Faults with one cause keep their order."""
    return tuple(sorted(faults, key=lambda fault: fault.cause))


def summary(faults: Sequence[Fault]) -> str:
    """The messages of the first faults, and how many more there are; "" without faults."""
    told = [fault.message for fault in faults[:MAX_TOLD]]
    more = len(faults) - len(told)
    return "; ".join([*told, f"and {more} more"] if more else told)


def is_same_summary(known: str, faults: Sequence[Fault]) -> bool:
    """Whether a summary that was written before tells the same faults, perhaps with other details.

    Args: known: what `summary` returned for the earlier faults
    """
    told = faults[:MAX_TOLD]
    more = len(faults) - len(told)
    place = 0
    for fault in told:
        place = known.find(fault.subject, place)
        if place < 0:
            return False
        place += len(fault.subject)
    are_pods = sum(fault.subject.startswith("pod ") for fault in told)
    tail = f"; and {more} more" if more else ""
    return len(_PART.findall(known)) == are_pods and (_MORE.search(known) or [""])[0] == tail


_PART: Final = re.compile(r"(?:^|(?<=; ))(?=pod \S)")
_MORE: Final = re.compile(r"; and \d+ more\Z")
_POD: Final = re.compile(r"\bpod (\S+?)(?: on node \S+)?: (?:([A-Z][A-Za-z]*): )?")


def faults_in(reason: str, text: str) -> list[Fault]:
    """The faults that a condition tells.

    Args:
        reason: of the condition
        text: its message, which may be a `summary`
    """
    parts = [part.strip().removesuffix(";") for part in _PART.split(text)]
    return [_told(reason, part) for part in parts if part] or [fault_of(reason, text)]


def _told(reason: str, text: str) -> Fault:
    found = _POD.search(text)
    if found is None:
        return fault_of(reason, text)
    own = found[2] if found[2] in REMEDIES else reason
    return msgspec.structs.replace(fault_of(own, text), worker=found[1])


# ---- the state of a pod -------------------------------------------------------------------------


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
    return reason not in (None, "") or _condition(state, "DisruptionTarget").get("status") == "True"


def running_since(pod: Object, container: str) -> Any:
    """The time since which the container runs, as its node says; None when it does not run."""
    found = (
        mapping(mapping(entry.get("state")).get("running")).get("startedAt")
        for entry in _containers(mapping(pod.get("status")))
        if entry.get("name") == container
    )
    return next(found, None)


def node_of(pod: Object) -> str:
    return str(mapping(pod.get("spec")).get("nodeName", ""))


def _condition(state: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    entries = _entries(state.get("conditions"))
    return next((entry for entry in entries if entry.get("type") == type_), {})


def _entries(value: Any) -> list[Mapping[str, Any]]:
    return [mapping(entry) for entry in value] if isinstance(value, list) else []


def _rank(pod: Object) -> int:
    return 0 if label_of(pod, LABEL_ROLE) in _ROLES_AHEAD else 1


# ---- the faults of one pod ----------------------------------------------------------------------


def _faults(pod: Object, now: datetime | None) -> Iterator[Fault]:
    if is_being_deleted(pod):
        overdue_in_s = math.inf if now is None else deletions.overdue_in_s(pod, now)
        yield msgspec.structs.replace(of_end(pod), begins_in_s=overdue_in_s)
        return
    state = mapping(pod.get("status"))
    phase = phase_of(pod)
    if phase == "Succeeded":
        return
    if phase == "Failed" and state.get("reason"):
        yield _fault(pod, state["reason"], state.get("message", ""))
        return
    found = [fault for entry in _containers(state) for fault in _of_container(pod, entry, now)]
    yield from found
    if phase == "Failed" and not found:
        yield _fault(pod, "PodFailed", state.get("message", ""))
    elif phase == "Unknown" or _is_cut_off(pod):
        yield _fault(pod, "NodeNotReady", "the node does not report any more")
    elif phase == "Pending" and not found:
        yield from _of_start(pod, state, now)


def of_end(pod: Object) -> Fault:
    """Why a pod that should be gone is still there."""
    return _fault(pod, deletions.TERMINATING, deletions.why(pod))


def of_master(pod: Object, master: str) -> Fault:
    """The fault of a worker whose master runs and does not answer it. Args: master: its pod"""
    detail = f"its master {master} runs, and has not answered it for a minute"
    return _fault(pod, MASTER_UNREACHABLE, detail, MASTER_WAIT)


def _of_start(pod: Object, state: Mapping[str, Any], now: datetime | None) -> Iterator[Fault]:
    """Why a pod without a faulty container does not start."""
    scheduled = _condition(state, "PodScheduled")
    created_at = pod["metadata"].get("creationTimestamp")
    if scheduled.get("status") == "False":
        reason = scheduled.get("reason") or "Unschedulable"
        is_gated = reason == "SchedulingGated"  # some schedulers gate each pod for a moment
        left_s = _left_s(created_at, PENDING_S, now) if is_gated else 0.0
        yield _fault(pod, reason, scheduled.get("message", ""), begins_in_s=left_s)
    elif not node_of(pod):
        left_s = _left_s(created_at, PENDING_S, now)
        detail = "it does not start: no scheduler has looked at it"
        yield _fault(pod, "NotScheduled", detail, begins_in_s=left_s)
    else:
        since = scheduled.get("lastTransitionTime") or created_at
        reason, detail, container = _of_node(pod, state)
        left_s = _left_s(since, PENDING_S, now)
        yield _fault(pod, reason, detail, container=container, begins_in_s=left_s)


def _of_node(pod: Object, state: Mapping[str, Any]) -> tuple[str, str, str]:
    """(reason, detail, container) of a pod that its node has not started."""
    started = [
        str(entry.get("name", ""))
        for entry in _entries(state.get("initContainerStatuses"))
        if mapping(entry.get("state")).get("running") is not None
    ]
    if started:
        name = started[-1]  # the others are sidecars, which run beside the containers that follow
        if name == MASTER_WAIT:
            return AWAITING_MASTER, "it waits until its master answers", name
        return "Initializing", f"it waits for its init container {name}", name
    waiting = [mapping(mapping(entry.get("state")).get("waiting")) for entry in _containers(state)]
    if any(entry.get("reason") in _COMING_UP for entry in waiting):
        return "ContainerCreating", f"its node does not start it: {_missing(pod)}", ""
    return "Pending", "it does not start: its node says nothing about it", ""


def _missing(pod: Object) -> str:
    """What a node may lack that has not made the containers. It does not say itself what it lacks.
    Those of the job's volumes come before ours, which we make.
    """
    volumes = _entries(mapping(pod.get("spec")).get("volumes"))
    volumes.sort(key=lambda volume: str(volume.get("name", "")).startswith(_OWN_VOLUME))
    needs = [
        f"the {type_} {source[key]} of volume {volume.get('name', '')}"
        for volume in volumes
        for type_, field, key in _NAMED
        if (source := mapping(volume.get(field))).get(key) and not source.get("optional")
    ]
    if not needs:
        return "the image or a volume is not there yet"
    named = [*needs[:_MAX_NEEDS], *(["another volume"] if len(needs) > _MAX_NEEDS else [])]
    return ", or ".join(["the image is not there yet", *named])


_NAMED: Final = (("ConfigMap", "configMap", "name"), ("Secret", "secret", "secretName"))
_OWN_VOLUME: Final = "edgeai-"
_MAX_NEEDS: Final = 2  # objects of volumes that one message names


def _containers(state: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        entry
        for field in ("initContainerStatuses", "containerStatuses")
        for entry in _entries(state.get(field))
    ]


def _is_cut_off(pod: Object) -> bool:
    """Whether the node controller has marked the pod, because its node is silent. A node itself
    never says that all containers are ready and the pod is not, unless the pod has readiness gates.
    """
    state = mapping(pod.get("status"))
    marks = [_condition(state, type_).get("status") for type_ in ("ContainersReady", "Ready")]
    has_gates = bool(mapping(pod.get("spec")).get("readinessGates"))
    return phase_of(pod) == "Running" and marks == ["True", "False"] and not has_gates


# ---- the faults of one container ----------------------------------------------------------------


def _of_container(pod: Object, entry: Mapping[str, Any], now: datetime | None) -> Iterator[Fault]:
    state = mapping(entry.get("state"))
    waiting, ended = mapping(state.get("waiting")), mapping(state.get("terminated"))
    last = mapping(mapping(entry.get("lastState")).get("terminated"))
    is_loop = waiting.get("reason") == CRASH_LOOP
    lost = next((end for end in (ended, last if is_loop else {}) if _is_lost_by_node(end)), None)
    if lost is not None:
        yield _node_restarted(pod, entry, lost, now)
    elif is_loop and last:
        yield _crash(pod, entry, last)
    elif waiting and str(waiting.get("reason")) not in _COMING_UP:
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
        return _fault(pod, NODE_RESTARTED, detail, name)
    left_s = _left_s(lost.get("finishedAt"), PENDING_S, now)
    detail += ", and has not started it again"
    return _fault(pod, NODE_RESTARTED, detail, name, begins_in_s=left_s)


def _not_started(
    pod: Object, entry: Mapping[str, Any], waiting: Mapping[str, Any], last: Mapping[str, Any]
) -> Fault:
    reason = waiting.get("reason") or "Waiting"
    if reason == "ErrImagePull":
        reason = "ImagePullBackOff"  # a node that cannot pull an image tells the two in turn
    name = str(entry.get("name", ""))
    end = f" ({_end(last)})" if last else ""
    return _fault(pod, reason, f"container {name}: {waiting.get('message', '')}{end}", name)


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
    found = _fault(pod, reason, f"container {name} ended with {_end(last)}", name)
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
    left_s = _left_s(running.get("startedAt"), needed_s, now)
    return left_s if left_s <= 2 * needed_s else 0.0  # the clock of the node is ahead


def _left_s(since: Any, limit_s: float, now: datetime | None) -> float:
    """Seconds from `now` until `limit_s` after `since`; infinite when a time is not known."""
    left = None if now is None else status.left_s(since, limit_s, now)
    return math.inf if left is None else left


def _fault(
    pod: Object, reason: Any, detail: Any, container: str = "", *, begins_in_s: float = 0.0
) -> Fault:
    word, name, node = str(reason), str(pod["metadata"]["name"]), node_of(pod)
    subject = f"pod {name} on node {node}" if node else f"pod {name}"
    text = _DELAY.sub("back-off ", f"{subject}: {word}: {detail}")
    fitting = word if _REASON.match(word) else "PodFault"
    cause = cause_of(fitting, text)
    return Fault(
        cause=cause,
        reason=fitting,
        message=shortened(printable(text), _MAX_MESSAGE_CHARS),
        subject=printable(subject),
        worker=name,
        node=node,
        container=container,
        is_pending=cause >= Cause.UNSCHEDULABLE and phase_of(pod) != "Failed",
        begins_in_s=begins_in_s,
    )
