"""Warnings that strangers can cause, logged at a bounded rate.

Used where a connection is turned away before its node is known. The metrics count each case; this
module keeps the log from filling up.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from common.logs import get_logger

log = get_logger(__name__)

EVERY_S: Final = 10.0


class RateLimitedWarning:
    """One warning, logged at most every `every_s` seconds with the number of those left out.

    Args:
        message: constant
        clock: monotonic seconds
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
        self._left_out = 0  # warnings since then

    def warn(self, **fields: Any) -> None:
        now = self._clock()
        if self._logged_at is not None and now < self._logged_at + self._every_s:
            self._left_out += 1
            return
        if self._left_out:
            fields["left_out"] = self._left_out
        self._logged_at, self._left_out = now, 0
        log.warning(self._message, **fields)
