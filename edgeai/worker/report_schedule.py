"""Decides when the next report is due. Pure: it takes and returns moments, in seconds.

The Reporter calls the schedule, and owns the lock and the clock.
"""

import math

from edgeai.backoff import Backoff


class ReportSchedule:
    """Plans at most one report in each period, heartbeats, and a back-off after failures.

    Args:
        period_s: least time between two reports
        heartbeat_s: most time between two reports, 0: no heartbeat
    """

    def __init__(self, *, period_s: float, heartbeat_s: float, backoff: Backoff) -> None:
        self._period_s = period_s
        self._heartbeat_s = heartbeat_s
        self._backoff = backoff
        self._is_changed = True  # the first report says that the worker has started
        self._is_requested = False
        self._not_before_s = -math.inf
        self._beat_s = math.inf

    def due_s(self) -> float:
        """The moment of the next report; inf: none until something changes."""
        if self._is_requested:
            return -math.inf
        if self._is_changed:
            return self._not_before_s
        return max(self._beat_s, self._not_before_s)

    def changed(self) -> None:
        self._is_changed = True

    def request_now(self) -> None:
        """Ask for one report now. The report does not wait for the period or for the back-off."""
        self._is_requested = True

    def started(self) -> None:
        """Call this when the sending of a report with the present state begins."""
        self._is_changed = self._is_requested = False

    def succeeded(self, now_s: float) -> None:
        self._backoff.reset()
        self._is_requested &= self._is_changed  # this report answers the request
        self._not_before_s = now_s + self._period_s
        self._beat_s = now_s + self._heartbeat_s if self._heartbeat_s else math.inf

    def failed(self, now_s: float, *, retry_after_s: float) -> None:
        self._is_changed = True
        self._not_before_s = now_s + self._backoff.next_s(at_least_s=retry_after_s)
