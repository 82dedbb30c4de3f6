"""How far an object is: its phase, its result, and what it waits for. Pure and total."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from edgeai.api.resources import Object
from edgeai.api.status import condition_of, mapping
from edgeai.faults import summary
from edgeai.faults.faults import Fault, job_fault
from edgeai.faults.remedies import is_good, remedy_of
from edgeai.text import printable

Result = Literal["", "succeeded", "failed"]
_SUCCEEDED: Final = ("Complete", "Succeeded", "ScaleSucceeded")
_FAILED: Final = ("Failed", "ScaleFailed")
# A kind that never ends has succeeded when this condition is True.
_UP: Final = {
    "JointInferenceService": "Running",
    "IncrementalLearningJob": "Learning",
    "Model": "Accepted",
    "Dataset": "Counted",
}
_UNSEEN: Final = "no GlobalManager has written a status yet: `edgeai doctor` says whether one runs"


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of any kind, and what to do when it is not good."""

    type: str
    status: str
    reason: str
    message: str
    since: str
    good: bool
    remedy: str


class State(msgspec.Struct, frozen=True, kw_only=True):
    """How far an object is."""

    phase: str
    result: Result
    """ "" while the object is under way. A service that runs has succeeded, and so has a Dataset
    that is counted."""
    faults: tuple[Fault, ...] = ()
    """Why the object does not go on, or has failed: the cause before its consequences."""

    @property
    def waits_for(self) -> tuple[str, ...]:
        """The faults in words."""
        return tuple(fault.text for fault in self.faults)


def conditions_of(object_: Object) -> tuple[Condition, ...]:
    return tuple(map(_condition, summary.conditions_of(object_.get("status"))))


def _condition(entry: Mapping[str, Any]) -> Condition:
    reason, message = (str(entry.get(field) or "") for field in ("reason", "message"))
    good = is_good(entry)
    since = entry.get("lastTransitionTime") or entry.get("lastUpdateTime") or ""
    return Condition(
        type=printable(str(entry.get("type") or "")),
        status=printable(str(entry.get("status") or "")),
        reason=printable(reason),
        message=printable(message),
        since=printable(str(since)),
        good=good,
        remedy="" if good else remedy_of(reason, message),
    )


def state_of(object_: Object, pods: Iterable[Object] = (), now: datetime | None = None) -> State:
    """How far an object is.

    Args:
        pods: of the object, where the caller has them. They say more than its conditions
        now: UTC. None: of the pods only what they themselves call a fault
    """
    status = mapping(object_.get("status"))
    result = _result(object_, conditions_of(object_))
    # A service that is up can have a fault, too: an edge that is out of contact.
    faults_of = summary.faults_of if result == "succeeded" else summary.waits_of
    faults = faults_of(object_, pods, now)
    if not status and not faults:
        faults = (job_fault("", _UNSEEN),)
    return State(phase=printable(summary.phase_of(status)), result=result, faults=faults)


def _result(object_: Object, conditions: tuple[Condition, ...]) -> Result:
    types = {condition.type for condition in conditions if condition.status == "True"}
    up = _UP.get(str(object_.get("kind")))
    if up is None and types.intersection(_SUCCEEDED):
        return "succeeded"
    if up is None and types.intersection(_FAILED):
        return "failed"
    if _is_current(object_, "Accepted", "False"):
        return "failed"  # it stays so until somebody corrects the spec
    return "succeeded" if up is not None and _is_current(object_, up, "True") else ""


def _is_current(object_: Object, type_: str, truth: str) -> bool:
    """Whether the condition has this value, and speaks of the present spec."""
    entry = condition_of(object_, type_)
    generation = mapping(object_.get("metadata")).get("generation", 1)
    return (entry.get("status"), entry.get("observedGeneration")) == (truth, generation)
