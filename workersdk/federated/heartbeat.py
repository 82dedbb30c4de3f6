"""Says "I am still here" in a thread of its own, in a rhythm that may change.

Driven by AggregatorClient, which tells the period that the aggregator wants.
"""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Heartbeat:
    """Calls `beat` in each period, from the first that is told until close()."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        self._change = threading.Condition()  # guards everything below
        self._period_s = 0.0
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def keep(self, period_s: float) -> None:
        """The next one so long from now, then in this rhythm. Callable from `beat`, too."""
        with self._change:
            self._period_s = period_s
            self._change.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="edgeai-participant", daemon=True
                )
                self._thread.start()

    def close(self, timeout_s: float) -> None:
        """One that is under way may go on for longer."""
        with self._change:
            self._is_closed = True
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while self._wait_until_due():
            try:
                self._beat()
            except Exception:  # whoever is silent is taken as gone, while it trains
                log.warning("a beat failed; the next one comes all the same", exc_info=True)

    def _wait_until_due(self) -> bool:
        """False when closed."""
        with self._change:
            while not self._is_closed and self._change.wait(self._period_s):
                pass  # told another period: wait anew
            return not self._is_closed
