"""SIGTERM and SIGINT for a worker that serves: the main thread is told, the rest goes on."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals_heeded(on_stop: Callable[[str], None]) -> Iterator[None]:
    """While it lasts `on_stop` is called with a signal's name; nothing outside the main thread.

    `on_stop` runs between two instructions of the main thread: it must take no lock that the
    thread may hold. A SimpleQueue's put() will do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heed(number: int, _frame: Any) -> None:
        on_stop(signal.Signals(number).name)

    before = {number: signal.signal(number, heed) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
