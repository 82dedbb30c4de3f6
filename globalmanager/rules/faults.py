"""The faults of pods, in causal order: what is wrong, why, and what to do.

A fault has the words of the pod's own status. Total: a pod status with missing or odd fields gives
a shorter message, never an exception.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from common.text import printable, shortened
from globalmanager.contract import Object
from globalmanager.rules.pod_state import node_of, phase_of
from globalmanager.rules.remedies import REMEDIES, Cause, cause_of, remedy_of
from globalmanager.rules.status import Finding, Truth

STALLED: Final = "Stalled"
"""The type of the condition that tells the faults of a job's workers."""
MAX_TOLD: Final = 3  # faults that one text names
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


def stalled(known: Mapping[str, Any], faults: Sequence[Fault]) -> Finding | None:
    """The condition Stalled of a job with these faults; None without faults.

    Args: known: the condition as it was last written. Its message stays while the faults do
    """
    if not faults:
        return None
    message, told = summary(faults), str(known.get("message", ""))
    is_same = known.get("reason") == faults[0].reason and is_same_summary(told, faults)
    return Finding(STALLED, Truth.TRUE, faults[0].reason, told if is_same else message)


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


def pod_fault(
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
