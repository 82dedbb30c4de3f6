"""Warnings that strangers can cause: few lines however many of them there are.

Used where a connection is turned away before it is known whose it is. Metrics count each case;
here only the log is kept from filling up.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from common.logs import get_logger

log = get_logger(__name__)

EVERY_S: Final = 10.0


class Complaint:
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
        self._said_at: float | None = None
        self._left_out = 0

    def warn(self, **fields: Any) -> None:
        now = self._clock()
        if self._said_at is not None and now < self._said_at + self._every_s:
            self._left_out += 1
            return
        if self._left_out:
            fields["left_out"] = self._left_out
        self._said_at, self._left_out = now, 0
        log.warning(self._message, **fields)
