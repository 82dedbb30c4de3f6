"""When the next report is due. Pure: moments go in (seconds, any clock), moments come out.

Driven by Reporter, which owns the lock and the clock.
"""

import math

from common.backoff import Backoff


class ReportSchedule:
    """On change at most once per period; a heartbeat when nothing changed; later after failures.

    Args:
        period_s: least time between two reports
        heartbeat_s: most time between two reports, 0: no heartbeat
    """

    def __init__(self, *, period_s: float, heartbeat_s: float, backoff: Backoff) -> None:
        self._period_s = period_s
        self._heartbeat_s = heartbeat_s
        self._backoff = backoff
        self._is_changed = True  # the first report says that the worker is there
        self._is_hurried = False
        self._not_before_s = -math.inf
        self._beat_s = math.inf

    def due_s(self) -> float:
        """The moment of the next report; inf: none until something changes."""
        if self._is_hurried:
            return -math.inf
        if self._is_changed:
            return self._not_before_s
        return max(self._beat_s, self._not_before_s)

    def changed(self) -> None:
        self._is_changed = True

    def hurry(self) -> None:
        """One report at once, whatever the period and the back-off say."""
        self._is_hurried = True

    def started(self) -> None:
        """A report with all that is known by now is on its way."""
        self._is_changed = self._is_hurried = False

    def succeeded(self, now_s: float) -> None:
        self._backoff.reset()
        self._is_hurried &= self._is_changed  # what was wanted in a hurry has arrived
        self._not_before_s = now_s + self._period_s
        self._beat_s = now_s + self._heartbeat_s if self._heartbeat_s else math.inf

    def failed(self, now_s: float, *, retry_after_s: float) -> None:
        self._is_changed = True
        self._not_before_s = now_s + self._backoff.next_s(at_least_s=retry_after_s)
