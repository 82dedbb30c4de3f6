"""Condition CloudReachable: whether the cloud worker answers the hard examples of the edge.

The fold of each report counts the fallbacks since the cloud last answered. The plan makes the
condition from this count. The count and the time of its beginning are in .status, so a restart of
the GlobalManager loses nothing, and a service whose cloud answers costs no further write.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from edgeai.api.status import Finding, Truth, left_s, parse_time
from edgeai.times import rfc3339
from globalmanager.contract import Observed
from globalmanager.kinds.edge.jointinferenceservice import health
from globalmanager.kinds.edge.jointinferenceservice.spec import CLOUD
from globalmanager.kinds.shared import status as job_status
from globalmanager.kinds.shared import worker_status

CLOUD_REACHABLE: Final = "CloudReachable"
UNREACHABLE_AFTER_S: Final = 60.0
"""Seconds of fallbacks only after which the condition is False."""

_IN_A_ROW: Final = "fallbacksInARow"
_SINCE: Final = "fallbacksSince"
_BEFORE: Final = "answeredBeforeFallbacks"
_ANSWERS: Final = "answeredByCloud"
_MAX_COUNT: Final = 2**53
_REACHABLE: Final = Finding(
    CLOUD_REACHABLE, Truth.TRUE, "CloudAnswers", "the cloud worker answers hard examples"
)


class Reachability(NamedTuple):
    findings: tuple[Finding, ...]
    """The condition; nothing while no worker has told how its hard examples were answered."""
    fields: dict[str, Any]
    """The fields of .status that the plan writes. The fold writes the count itself, see
    `counted`."""
    check_in_s: float | None
    """Seconds until the condition may change without a report."""


def counted(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the merge patch of .status that counts the fallbacks in a row.

    Args: before, after: .status without and with a report
    """
    count = _in_a_row(before)
    # Differences of sums, so a report that comes twice adds nothing.
    more = _total(after, "fallbacks") - _total(before, "fallbacks")
    # One answer ends the row, because the cloud was reachable within the time of this report.
    is_answered = _total(after, _ANSWERS) > _total(before, _ANSWERS)
    total = 0 if is_answered else min(count + max(more, 0), _MAX_COUNT)
    # None removes the field, and the same number writes nothing.
    return {} if total == count else {_IN_A_ROW: total or None}


def reachability(observed: Observed, now: datetime) -> Reachability:
    status = job_status.status_of(observed)
    # Within the minute the cloud counts as reachable, if it has ever answered.
    reachable = (_REACHABLE,) if _total(status, _ANSWERS) else ()
    if not _in_a_row(status):
        # Only fields that exist: a service whose cloud answers writes nothing here.
        removal = dict.fromkeys((key for key in (_SINCE, _BEFORE) if key in status), None)
        return Reachability(reachable, removal, None)
    since = _since(status, now)
    # With the answers at the beginning, a plan that has missed an answer still sees that the row is
    # another one.
    fields = {_SINCE: since, _BEFORE: _total(status, _ANSWERS)}
    grace_s = left_s(since, UNREACHABLE_AFTER_S, now)
    if grace_s > 0:
        return Reachability(reachable, fields, grace_s)
    return Reachability((_unreachable(observed),), fields, None)


def _since(status: Mapping[str, Any], now: datetime) -> str:
    """When the first of the fallbacks in a row became known. A known time counts only if the cloud
    has not answered since.
    """
    time = parse_time(status.get(_SINCE))
    is_same_row = status.get(_BEFORE) == _total(status, _ANSWERS)
    # A forged time in the future would put off the condition for ever.
    return rfc3339(time if time is not None and is_same_row and time <= now else now)


def _unreachable(observed: Observed) -> Finding:
    text = (
        f"the cloud has answered no hard example for {UNREACHABLE_AFTER_S:g} s; the edge workers "
        "use their own answers"
    )
    # The cause comes before its consequence: the user looks at the worker before the network.
    if not health.is_available(observed, CLOUD):
        message = f"{text}: the cloud worker is not available, see condition Running"
        return Finding(CLOUD_REACHABLE, Truth.FALSE, "CloudWorkerUnavailable", message)
    message = (
        f"{text}: the cloud worker is available, so check Service {observed.ref.name}-{CLOUD} and "
        "the network from the edge nodes to it"
    )
    return Finding(CLOUD_REACHABLE, Truth.FALSE, "NoAnswer", message)


def _in_a_row(status: Mapping[str, Any]) -> int:
    value = status.get(_IN_A_ROW)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT:
        return value
    return 0


def _total(status: Mapping[str, Any], count: str) -> int:
    return worker_status.total(status, count) or 0
