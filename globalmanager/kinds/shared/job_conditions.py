"""The conditions of a training job, in the order and with the words of the Kubeflow operators.

The et-operator for elastic training has the same list with further words. A condition that changes
moves to the end of the list, so the last condition is the job's state. `kubectl get` and the client
libraries read the last one. Exactly one of Succeeded and Failed can be there, and it is final.
Source: kubeflow/training-operator 1.9, pkg/util/status.go.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from edgeai.api.status import MAX_MESSAGE_CHARS, Finding, Truth, mapping, mappings, parse_time
from edgeai.faults.faults import STALLED, Fault, is_same_summary, summary
from edgeai.text import printable, shortened
from edgeai.times import rfc3339
from globalmanager.contract import Event, Observed, Severity
from globalmanager.kinds.shared import status
from globalmanager.kinds.shared.lifecycle import first_time


class State(enum.StrEnum):
    """The type of a condition."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


_SKEW: Final = timedelta(seconds=5)
"""Clocks of two GlobalManagers may differ so much."""
ENDS: Final = (State.SUCCEEDED, State.FAILED)
_EXCLUDES: Final[Mapping[str, str]] = {
    State.RUNNING: State.RESTARTING,
    State.RESTARTING: State.RUNNING,
}


class Conditions:
    """The list of conditions while a plan changes it.

    Args:
        kind: the beginning of the reasons: "TFJob"
        states: the types of the conditions. Conditions of other types are dropped
    """

    def __init__(
        self,
        observed: Observed,
        kind: str,
        now: datetime,
        *,
        states: Iterable[str] = tuple(State),
    ) -> None:
        types = tuple(states)  # the type of an entry can be anything, also unhashable
        entries = mappings(status.status_of(observed).get("conditions"))
        # Stalled and Overridden are no states: they drop out, and are set again while they last.
        self.entries = [dict(entry) for entry in entries if entry.get("type") in types]
        self.last_stall = status.condition(observed, STALLED)
        """The condition Stalled in the status; empty when the job has not stalled."""
        self._observed = observed
        self._kind = kind
        self._now = now
        self.events: list[Event] = []
        """The events of the conditions that have become true, or false for a reason."""

    @property
    def has_ended(self) -> bool:
        return any(self.is_true(end) for end in ENDS)

    def is_true(self, state: str) -> bool:
        return self.get(state).get("status") == Truth.TRUE

    def get(self, state: str) -> Mapping[str, Any]:
        return next((entry for entry in self.entries if entry["type"] == state), {})

    def set(
        self,
        state: str,
        message: str,
        *,
        truth: Truth = Truth.TRUE,
        cause: str = "",
    ) -> None:
        """Set a condition, unless it has this status and reason, or the job has ended.

        Args:
            cause: the end of the reason ("TFJobRunning"); the type when it is empty
        """
        message = printable(message)[:MAX_MESSAGE_CHARS]
        reason = f"{self._kind}{cause or state}"
        previous = dict(self.get(state))
        # An end is final, and a condition that says the same costs no write and no event.
        if self.has_ended or (previous.get("status"), previous.get("reason")) == (truth, reason):
            return
        # API conventions: the time of a transition moves with the status, not with the reason.
        since = previous.get("lastTransitionTime") if previous.get("status") == truth else None
        entry = self._entry(Finding(str(state), truth, reason, message), since)
        # Running and Restarting exclude each other, as in the Kubeflow operators.
        types = {str(state), str(_EXCLUDES.get(state, ""))} if truth is Truth.TRUE else {str(state)}
        others = [one for one in self.entries if one["type"] not in types]
        # The Kubeflow operators, too, keep Running as False in a job that has ended.
        if state in ENDS:
            others = [self._stopped(one) if one["type"] == State.RUNNING else one for one in others]
        self.entries = [*others, entry]
        severity = Severity.WARNING if state == State.FAILED else Severity.NORMAL
        self.events.append(Event(severity, reason, message))

    def resume(self, text: str) -> str:
        """End a suspension. Returns: when the job was first worked on, or was last resumed

        Args: text: the job in messages: "TFJob mnist"
        """
        # As in the Kubeflow operators, a resumed job has a new startTime. activeDeadlineSeconds
        # counts from it, so the suspension takes nothing from the deadline.
        if self.is_true(State.SUSPENDED):
            message = f"{text} is resumed."
            self.set(State.SUSPENDED, message, truth=Truth.FALSE, cause="Resumed")
            return rfc3339(self._now)
        return str(first_time(self._observed, "startTime", self._now, is_due=True))

    def stall(self, faults: Sequence[Fault]) -> None:
        """Set the condition Stalled. Without this call, or without faults, the job does not have
        the condition. It is the first in the list, so the last one is still the job's state.

        Args: faults: in causal order; the condition has the reason of the first one
        """
        if not faults:
            return
        reason, message = faults[0].reason, shortened(summary(faults), MAX_MESSAGE_CHARS)
        last = self.last_stall
        last_message = str(last.get("message", ""))
        update = parse_time(last.get("lastUpdateTime"))
        is_ahead = update is not None and update > self._now + _SKEW  # written by another clock
        # The numbers of a scheduler and the delays of a kubelet change all the time. A message that
        # names the same faults stays, so that a stall costs one write.
        is_same = last_message == message or is_same_summary(last_message, faults)
        if not is_ahead and last.get("reason") == reason and is_same:
            self.entries = [dict(last), *self.entries]
            return
        finding = Finding(STALLED, Truth.TRUE, reason, message)
        self.entries = [self._entry(finding, last.get("lastTransitionTime")), *self.entries]
        # Other faults come and go beside the first one, which is what the job waits for.
        is_other = last.get("reason") != reason or not last_message.startswith(faults[0].subject)
        if is_ahead or is_other:
            self.events.append(Event(Severity.WARNING, f"{self._kind}{STALLED}", message))

    def tell_first(self, finding: Finding) -> None:
        """Put a condition before all others, so the last one is still the job's state. A job that
        no call tells of does not have the condition. The engine records the event.
        """
        previous = status.condition(self._observed, finding.type)
        message = printable(finding.message)[:MAX_MESSAGE_CHARS]
        entry = self._entry(
            msgspec.structs.replace(finding, message=message), previous.get("lastTransitionTime")
        )
        # The same words keep the whole entry with its times, so the status does not change.
        is_same = all(previous.get(key) == entry[key] for key in ("reason", "message"))
        self.entries = [dict(previous) if is_same else entry, *self.entries]

    def _entry(self, finding: Finding, since: Any) -> dict[str, Any]:
        """Args: since: the time of the last transition; None: now"""
        at = rfc3339(self._now)
        return {
            "type": finding.type,
            "status": str(finding.truth),
            "reason": finding.reason,
            "message": finding.message,
            "lastUpdateTime": at,
            "lastTransitionTime": since or at,
        }

    def _stopped(self, running: Mapping[str, Any]) -> dict[str, Any]:
        """The condition Running of a job that has ended."""
        if running.get("status") == Truth.FALSE:
            return dict(running)
        at = rfc3339(self._now)
        return {**running, "status": "False", "lastUpdateTime": at, "lastTransitionTime": at}


# The words of the Kubeflow operators' metrics (…_jobs_failed_total) stay, for dashboards.
_OUTCOMES: Final[Mapping[str, str]] = {
    State.CREATED: "created",
    State.RUNNING: "running",
    State.SUSPENDED: "suspended",
    State.SUCCEEDED: "successful",
    State.FAILED: "failed",
    STALLED: "stalled",
}


def outcomes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """What a write of .status says about the job, for metrics: outcome -> how often it has come.
    Total. Args: before, after: .status before and after the write
    """
    # Each write has the whole list. Only what has become true is counted, so a job counts once.
    became = _true(after) - _true(before)
    counts = {word: 1 for type_, word in _OUTCOMES.items() if type_ in became}
    restarted = _restarts(before, after)
    return {**counts, "restarted": restarted} if restarted else counts


def _true(status: Mapping[str, Any]) -> set[str]:
    """The types of the conditions that are True."""
    entries = mappings(status.get("conditions"))
    return {str(entry.get("type")) for entry in entries if entry.get("status") == Truth.TRUE}


def _restarts(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """The restarts that the write has added. A restart of the whole job is one restart."""
    old, new = mapping(before.get("restarts")), mapping(after.get("restarts"))
    increases = [_number(new[name]) - _number(old.get(name)) for name in new]
    increases.append(_number(after.get("jobRestarts")) - _number(before.get("jobRestarts")))
    # A counter of Prometheus never falls, also when somebody lowers a number in the status.
    return sum(max(0, number) for number in increases)


def _number(value: Any) -> int:
    # A status can hold anything, and True is an int for isinstance.
    return value if type(value) is int else 0
