"""Rules for the fields of .status that plans write: conditions, and the events of conditions.

Two writers share .status. The folds of reports write `workers` and what follows from it at once:
sums, and the fallbacks in a row of a JointInferenceService. Plans write the other fields, correct
the sums, and in training jobs and FederatedLearningJobs remove workers that are gone. Nothing here
reads a clock. When only a time has changed, nothing is written.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from edgeai import times
from edgeai.api.specs import InvalidSpec
from edgeai.api.status import (
    MAX_MESSAGE_CHARS,
    STARTING,
    SUCCEEDED,
    WAITING,
    Finding,
    Truth,
    condition_of,
    mapping,
    parse_time,
)
from edgeai.text import printable
from globalmanager.contract import Event, Observed, Severity

ACCEPTED: Final = "Accepted"
SUSPENDED: Final = "Suspended"
RESUMED: Final = "Resumed"
_NORMAL: Final = frozenset({SUCCEEDED, SUSPENDED, RESUMED})
"""Reasons of conditions that are False in the normal course of things."""


def status_of(observed: Observed) -> Mapping[str, Any]:
    """.status of the job; empty when there is none, or when it is no map."""
    # A user with the right to the subresource may write any JSON there.
    return mapping(observed.object.get("status"))


def condition(observed: Observed, type_: str) -> Mapping[str, Any]:
    """The condition as it was last written. Empty when the job has no such condition."""
    return condition_of(observed.object, type_)


def accepted(note: str = "") -> Finding:
    """Condition Accepted for a spec that the GlobalManager can carry out."""
    return Finding(ACCEPTED, Truth.TRUE, "Valid", note or "the spec can be carried out")


def rejected(error: InvalidSpec) -> Finding:
    """Condition Accepted of a wrong spec, with the field, the fault and the remedy."""
    message = f"{error}. What runs already is left as it is."
    return Finding(ACCEPTED, Truth.FALSE, "InvalidSpec", message)


def conditions(
    observed: Observed, findings: Iterable[Finding], now: datetime
) -> list[dict[str, Any]]:
    """The whole list of conditions. The list has only these findings, so the list cannot grow."""
    return [_condition(observed, finding, now) for finding in findings]


def _condition(observed: Observed, finding: Finding, now: datetime) -> dict[str, Any]:
    previous = condition(observed, finding.type)
    # The time of the last change of the status, by the API conventions; a new reason moves nothing.
    since = previous.get("lastTransitionTime")
    unmoved = previous.get("status") == finding.truth and parse_time(since)
    return {
        "type": finding.type,
        "status": str(finding.truth),
        "reason": finding.reason,
        # A container writes a part of some messages; no control character may reach a terminal.
        "message": printable(finding.message)[:MAX_MESSAGE_CHARS],
        "lastTransitionTime": since if unmoved else times.rfc3339(now),
        "observedGeneration": observed.generation,
    }


def events(observed: Observed, findings: Iterable[Finding]) -> tuple[Event, ...]:
    """An event for each condition that became True, or that is False for a new reason."""
    candidates = (_event(condition(observed, finding.type), finding) for finding in findings)
    return tuple(event for event in candidates if event is not None)


def _event(previous: Mapping[str, Any], finding: Finding) -> Event | None:
    is_transition = previous.get("status") != finding.truth
    # A condition that begins as True is the normal course of every new job.
    if finding.truth is Truth.TRUE and previous and is_transition:
        return Event(Severity.NORMAL, finding.reason, finding.message)
    # A message may hold a number that changes; an Event for each change would hide the others.
    new_reason = is_transition or previous.get("reason") != finding.reason
    if finding.truth is Truth.FALSE and new_reason and finding.reason not in (STARTING, WAITING):
        severity = Severity.NORMAL if finding.reason in _NORMAL else Severity.WARNING
        return Event(severity, finding.reason, finding.message)
    return None


def subtree(observed: Observed, desired: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """`desired` for Plan.status; None when .status already has the same values."""
    current = status_of(observed)
    # Only the keys of the plan count. The reports of edges own `workers` in the same status.
    is_written = all(current.get(key) == value for key, value in desired.items())
    return None if is_written else desired


def replacing_subtree(observed: Observed, desired: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """As `subtree`, for a kind that gives each map whole: other keys of .status are removed."""
    current = status_of(observed)
    # A merge patch keeps every key that it does not name, also a replica type that is gone.
    patches = {
        key: replacement_patch(mapping(current.get(key)), value)
        for key, value in desired.items()
        if isinstance(value, dict) and current.get(key) != value
    }
    return subtree(observed, {**desired, **patches})


def workers_left_out(observed: Observed, names: Collection[str]) -> dict[str, Any]:
    """A patch that removes the entries of workers that are not among `names`."""
    # Old entries would take the room that the reports of other workers need.
    former = [name for name in mapping(status_of(observed).get("workers")) if name not in names]
    return {"workers": dict.fromkeys(former)} if former else {}


def described(
    observed: Observed, findings: Iterable[Finding], now: datetime
) -> Mapping[str, Any] | None:
    """Plan.status of a kind whose status has only conditions."""
    desired = {
        "observedGeneration": observed.generation,
        "conditions": conditions(observed, findings, now),
    }
    return subtree(observed, desired)


def replacement_patch(current: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that replaces a stored map by `desired`. null removes a field."""
    # A merge patch removes a key only where it says null.
    patch: dict[str, Any] = {key: None for key in current if key not in desired}
    for key, value in desired.items():
        # The API server merges maps and replaces everything else, lists too.
        is_map = isinstance(value, dict)
        patch[key] = replacement_patch(mapping(current.get(key)), value) if is_map else value
    return patch
