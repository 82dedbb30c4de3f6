"""Decides whether to call a peer that failed before. Pure, except for its clock.

While the circuit is closed, the breaker admits every call. A failed call opens the circuit: the
breaker then admits no call for a random time, which grows with each failure in a row. After this
time it admits one call, the probe. Its success closes the circuit; its failure opens it longer.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, NewType

from edgeai.backoff import Backoff

Ticket = NewType("Ticket", int)  # of an admitted call; the caller gives it back with the outcome

MAX_COST_FACTOR: Final = 9


class CircuitBreaker:
    """Thread-safe. The caller must return every ticket with succeeded() or failed()."""

    def __init__(
        self, backoff: Backoff | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._backoff = backoff or Backoff(base_s=0.25, max_s=5.0, floor_s=0.05)
        self._clock = clock
        self._lock = threading.Lock()
        # Grows when the circuit opens or closes, so that outcomes of earlier calls are ignored.
        self._generation = 0
        self._open_until_s: float | None = None  # None: closed
        self._is_probing = False

    def admit(self) -> Ticket | None:
        """Ask to call the peer. Returns: a ticket; None: do not call now."""
        with self._lock:
            if self._open_until_s is None:
                return Ticket(self._generation)
            if self._is_probing or self._clock() < self._open_until_s:
                return None
            self._is_probing = True
            return Ticket(self._generation)

    def succeeded(self, ticket: Ticket) -> None:
        with self._lock:
            if ticket == self._generation and self._open_until_s is not None:
                self._switch(None)
                self._backoff.reset()

    def failed(self, ticket: Ticket, *, cost_s: float, retry_after_s: float = 0.0) -> None:
        """Note a failed call. `cost_s`: its duration; a longer failure means a longer pause."""
        with self._lock:
            if ticket != self._generation:
                return
            failures_before = self._backoff.failures
            pause_s = self._backoff.next_s(at_least_s=retry_after_s)
            pause_s += cost_s * min(failures_before, MAX_COST_FACTOR)
            self._switch(self._clock() + pause_s)

    def _switch(self, open_until_s: float | None) -> None:
        self._generation += 1
        self._open_until_s = open_until_s
        self._is_probing = False
