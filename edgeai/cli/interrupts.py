"""Handles the signals that end the `edgeai` command. A signal never stops a clean-up."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final, NoReturn

ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


def exit_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise an exception, as Ctrl-C does, so that clean-up runs."""
    for number in ENDING:
        signal.signal(number, _exit)


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold back signals until the block ends. At the first signal print a line for the user."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread of Python gets signals
        return
    signals: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if not signals:
            print("edgeai: stopping what was started, one moment …", file=sys.stderr, flush=True)
        signals.append(number)

    former = {n: signal.signal(n, note) for n in (signal.SIGINT, *ENDING)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
