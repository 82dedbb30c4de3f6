"""Signals end the `edgeai` command, but never in the middle of its clean-up."""

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final, NoReturn

ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


def exit_on_signals() -> None:
    """From now on SIGTERM and SIGHUP unwind the stack as Ctrl-C does, so clean-up runs."""
    for number in ENDING:
        signal.signal(number, _exit)


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Signals wait until the block is done. A line on the terminal says that a signal was seen."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python handles signals in the main thread only
        return
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if not received:
            print("edgeai: stopping what was started, one moment …", file=sys.stderr, flush=True)
        received.append(number)

    former = {n: signal.signal(n, note) for n in (signal.SIGINT, *ENDING)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
