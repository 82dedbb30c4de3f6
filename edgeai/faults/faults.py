"""A fault: what is wrong with a job or one of its pods, why, and what to do.

A condition has a job's faults as one text, which `faults_in` reads again. Pure and total.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec

from edgeai.api.pod_state import node_of, phase_of
from edgeai.api.resources import Object
from edgeai.api.status import Finding, Truth
from edgeai.faults.remedies import REMEDIES, Cause, cause_of, remedy_of
from edgeai.text import printable, shortened

STALLED: Final = "Stalled"
"""Type of the condition with the faults of a job's workers."""
# Three messages of _MAX_MESSAGE_CHARS fit into a condition, which has 1,024 characters.
MAX_NAMED: Final = 3  # faults that one text names
# The form that the API conventions demand of the reason of a condition.
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
        # The number grows with each restart. In a message it would cost a write of the status each
        # time, so only what people read at once has it.
        times = "once" if self.restarts == 1 else f"{self.restarts} times"
        return f"{self.message} (started again {times})" if self.restarts else self.message


def job_fault(reason: str, message: str) -> Fault:
    """A fault of the whole job. Args: message: "<what>: <why>" """
    text = printable(message)
    subject = text.partition(":")[0]
    return Fault(cause=cause_of(reason, text), reason=reason, message=text, subject=subject)


def pod_fault(
    pod: Object, reason: Any, detail: Any, container: str = "", *, begins_in_s: float = 0.0
) -> Fault:
    """A fault of one pod. Args: reason, detail: as some field of the pod has them"""
    word, name, node = str(reason), str(pod["metadata"]["name"]), node_of(pod)
    subject = f"pod {name} on node {node}" if node else f"pod {name}"
    text = _DELAY.sub("back-off ", f"{subject}: {word}: {detail}")
    # A pod's status comes from its node, and may have any text there.
    valid_reason = word if _REASON.match(word) else "PodFault"
    cause = cause_of(valid_reason, text)
    return Fault(
        cause=cause,
        reason=valid_reason,
        message=shortened(printable(text), _MAX_MESSAGE_CHARS),
        subject=printable(subject),
        worker=name,
        node=node,
        container=container,
        # From here on room, a node or another worker may come by itself; before, somebody must act.
        is_pending=cause >= Cause.UNSCHEDULABLE and phase_of(pod) != "Failed",
        begins_in_s=begins_in_s,
    )


def in_order(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """The faults by their cause. Faults with one cause keep their order."""
    return tuple(sorted(faults, key=attrgetter("cause")))


# ---- the text of a condition --------------------------------------------------------------------


def stalled_finding(last: Mapping[str, Any], faults: Sequence[Fault]) -> Finding | None:
    """The condition Stalled of a job with these faults; None without faults.

    Args: last: the condition as it was last written. Its message stays while the faults do
    """
    if not faults:
        return None
    reason, message = faults[0].reason, str(last.get("message", ""))
    # A scheduler's numbers change with other pods. With the old message a full cluster writes once.
    is_same = last.get("reason") == reason and is_same_summary(message, faults)
    return Finding(STALLED, Truth.TRUE, reason, message if is_same else summary(faults))


def summary(faults: Sequence[Fault]) -> str:
    """The messages of the first faults, and how many more there are; "" without faults."""
    return "; ".join([fault.message for fault in faults[:MAX_NAMED]]) + _tail(faults)


def _tail(faults: Sequence[Fault]) -> str:
    more = len(faults) - MAX_NAMED
    return f"; and {more} more" if more > 0 else ""


def is_same_summary(text: str, faults: Sequence[Fault]) -> bool:
    """Whether an earlier summary names the same faults, perhaps with other details.

    Args: text: what `summary` returned for the earlier faults
    """
    place, pods = 0, 0
    for fault in faults[:MAX_NAMED]:
        # In this order: when another fault has become the first one, the text is not the same.
        place = text.find(fault.subject, place)
        if place < 0:
            return False
        place += len(fault.subject)
        pods += fault.subject.startswith("pod ")
    tail = _TAIL.search(text)
    is_same_tail = (tail[0] if tail else "") == _tail(faults)
    return is_same_tail and len(_POD_PART.findall(text)) == pods


# A message of Kubernetes may have "; " itself, so a new fault begins only before a pod.
_POD_PART: Final = re.compile(r"(?:^|(?<=; ))(?=pod \S)")
_TAIL: Final = re.compile(r"; and \d+ more\Z")
_POD: Final = re.compile(r"\bpod (\S+?)(?: on node \S+)?: (?:([A-Z][A-Za-z]*): )?")


def faults_in(condition: Mapping[str, Any]) -> list[Fault]:
    """The faults that a condition names. Its message may be a `summary`."""
    reason, message = (str(condition.get(field) or "") for field in ("reason", "message"))
    parts = [part.strip().removesuffix(";") for part in _POD_PART.split(message)]
    faults = [_fault_in(reason, part) for part in parts if part]
    # An empty list would say that nothing is wrong.
    return faults or [job_fault(reason, f"condition {condition.get('type')} has no message")]


def _fault_in(reason: str, text: str) -> Fault:
    pod = _POD.search(text)
    if pod is None:
        return job_fault(reason, text)
    name, word = pod.groups()
    # Each pod in a summary has a reason of its own. The condition has the reason of the first one.
    fault = job_fault(word if word in REMEDIES else reason, text)
    return msgspec.structs.replace(fault, worker=name)
