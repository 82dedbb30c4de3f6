"""Decides whether it is worth to ask a peer that failed before. Pure but for the clock it is given.

Closed: every call is admitted. After a failure it is open: no call is admitted, for a jittered
time that grows while failures follow each other. Then one call, the probe, is admitted; what
becomes of it closes the circuit or opens it for longer.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, NewType

from common.backoff import Backoff

Ticket = NewType("Ticket", int)  # what an admitted call hands back with its outcome

MAX_COST_FACTOR: Final = 9


class CircuitBreaker:
    """Thread-safe. Every ticket must come back, through succeeded() or failed().

    Args:
        backoff: of failures in a row
        clock: monotonic seconds
    """

    def __init__(
        self, backoff: Backoff | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._backoff = backoff or Backoff(base_s=0.25, max_s=5.0, floor_s=0.05)
        self._clock = clock
        self._lock = threading.Lock()
        self._era = 0  # grows with every change, so that late outcomes of a past era are ignored
        self._open_until_s: float | None = None  # None: closed
        self._is_probing = False

    def admit(self) -> Ticket | None:
        """A ticket, or None: do not ask now."""
        with self._lock:
            if self._open_until_s is None:
                return Ticket(self._era)
            if self._is_probing or self._clock() < self._open_until_s:
                return None
            self._is_probing = True
            return Ticket(self._era)

    def succeeded(self, ticket: Ticket) -> None:
        with self._lock:
            if ticket == self._era and self._open_until_s is not None:
                self._change(None)
                self._backoff.reset()

    def failed(self, ticket: Ticket, *, cost_s: float, retry_after_s: float = 0.0) -> None:
        """`cost_s`: how long the call took to fail; calls that hang must become rare."""
        with self._lock:
            if ticket != self._era:
                return
            failures_before = self._backoff.failures
            pause_s = self._backoff.next_s(at_least_s=retry_after_s)
            pause_s += cost_s * min(failures_before, MAX_COST_FACTOR)
            self._change(self._clock() + pause_s)

    def _change(self, open_until_s: float | None) -> None:
        self._era += 1
        self._open_until_s = open_until_s
        self._is_probing = False
