"""Handles SIGTERM and SIGINT in a worker that serves requests."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def handling_stop_signals(on_stop: Callable[[str], None]) -> Iterator[None]:
    """Within the `with` block a stop signal calls `on_stop` with the name of the signal.

    Outside the main thread the block changes no signal handler.
    `on_stop` interrupts the main thread, so it takes none of its locks. SimpleQueue.put() is safe.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _frame: Any) -> None:
        on_stop(signal.Signals(number).name)

    before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
