"""One program in a process of its own: started, asked whether it lives, stopped by its pid.

Used for the control plane and for the GlobalManager. A program dies with the test run that
started it, also when that is killed.
"""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from tests.support.processes import memory_kib, processor_s
from tests.support.waiting import PATIENCE_S, eventually

T = TypeVar("T")

STOP_S: Final = 15.0
_SHOWN_LINES: Final = 25
_INFORMATION: Final = re.compile(r"I\d{4} ")
_TRACE: Final = "goroutine "  # of a Go program that gives up, long, after what it says about that


class ProgramEnded(Exception):
    """A program that is to run has ended; says the end of its log.

    No AssertionError: `eventually` would go on waiting for what cannot happen any more.
    """


class Program:
    """Args:
    argv: what is run
    log: file that gets its stdout and stderr; a restart appends
    environment: added to this process's own
    """

    def __init__(
        self, argv: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._argv = list(argv)
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return self._log.stem

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                # The kernel kills it with its parent; setpriv becomes the program, with its pid.
                ["setpriv", "--pdeathsig", "KILL", "--", *self._argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is for the test run, which then stops it
            )

    def stop(self, how: signal.Signals = signal.SIGTERM, *, within_s: float = STOP_S) -> int:
        """Its exit status; SIGKILL follows when `how` does not end it in time."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(how)
        try:
            return process.wait(within_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def eventually(
        self, what: str, check: Callable[[], T | None], *, timeout_s: float = PATIENCE_S
    ) -> T:
        """As `waiting.eventually`, while the program runs. Raises: ProgramEnded, NeverHappened"""

        def check_both() -> T | None:
            self.check_alive()
            return check()

        return eventually(f"{what} of {self.name}", check_both, timeout_s=timeout_s)

    def check_alive(self) -> None:
        """Raises: ProgramEnded"""
        status = None if self._process is None else self._process.poll()
        if status is not None:
            raise ProgramEnded(f"{self.name} ended with status {status}:\n{self.last_words()}")

    def resident_kib(self) -> float:
        """Its memory: the resident set."""
        return memory_kib(self.pid)["VmRSS"]

    def peak_kib(self) -> float:
        """The largest resident set since the start, or since `forget_peak`."""
        return memory_kib(self.pid)["VmHWM"]

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")  # proc(5): resets VmHWM

    def processor_s(self) -> float:
        """Seconds of processor time since the start."""
        return processor_s(self.pid)

    def last_words(self) -> str:
        """The end of its log, without what Kubernetes' programs say for information only."""
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        lines = log.partition(f"\n{_TRACE}")[0].splitlines()
        telling = [line for line in lines if not _INFORMATION.match(line)]
        return "\n".join(telling[-_SHOWN_LINES:])
