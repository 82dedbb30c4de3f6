"""Warnings that strangers can cause, logged at a limited rate.

The servers use this module when they refuse a connection, and the GlobalManager when it leaves out
what a tenant wants. A metric counts each case. The rate limit keeps strangers from filling the log.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from common.logs import get_logger

log = get_logger(__name__)

EVERY_S: Final = 10.0


class RateLimitedWarning:
    """One kind of warning, logged at most once in `every_s` seconds.

    The field `left_out` of a log line counts the warnings since the last one.

    Args: clock: monotonic seconds
    """

    def __init__(
        self,
        message: str,
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._message = message
        self._every_s = every_s
        self._clock = clock
        self._logged_at: float | None = None
        self._left_out = 0  # warnings without a log line since the last log line

    def log(self, **fields: Any) -> None:
        now = self._clock()
        if self._logged_at is not None and now < self._logged_at + self._every_s:
            self._left_out += 1
            return
        if self._left_out:
            fields["left_out"] = self._left_out
        self._logged_at, self._left_out = now, 0
        log.warning(self._message, **fields)
