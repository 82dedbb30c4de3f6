"""Sends beats in its own thread, with a period that may change.

AggregatorClient creates a Heartbeat, and sets the period that the aggregator asks for.
"""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Heartbeat:
    """Calls `beat` once in each period, from the first set_period() until close()."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        self._change = threading.Condition()  # guards the fields below
        self._period_s = 0.0
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def set_period(self, period_s: float) -> None:
        """Send each further beat `period_s` after the one before. `beat` may call set_period."""
        with self._change:
            self._period_s = period_s
            self._change.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="edgeai-participant", daemon=True
                )
                self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Stop. Wait up to `timeout_s` for a beat in progress, which may take longer."""
        with self._change:
            self._is_closed = True
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while self._wait_until_due():
            try:
                self._beat()
            except Exception:  # without further beats this participant would count as gone
                log.warning("a beat failed; the next one is sent all the same", exc_info=True)

    def _wait_until_due(self) -> bool:
        """Wait until a beat is due. Returns: False if the Heartbeat was closed"""
        with self._change:
            while not self._is_closed and self._change.wait(self._period_s):
                pass  # the period has changed: wait again
            return not self._is_closed
