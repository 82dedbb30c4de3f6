"""What a write of a training job's status says about the job, for metrics. Pure and total."""

from collections.abc import Mapping
from typing import Any, Final

from edgeai.api.status import Truth, mapping, mappings
from edgeai.faults.faults import STALLED
from globalmanager.kinds.shared.job_conditions import State

# Where the Kubeflow operators have a metric (training_operator_jobs_failed_total), its word stays,
# so the dashboards of their users go on.
_OUTCOMES: Final[Mapping[str, str]] = {
    State.CREATED: "created",
    State.RUNNING: "running",
    State.SUSPENDED: "suspended",
    State.SUCCEEDED: "successful",
    State.FAILED: "failed",
    STALLED: "stalled",
}


def outcomes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """Outcome -> how often it has come. Args: before, after: .status before and after the write"""
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
