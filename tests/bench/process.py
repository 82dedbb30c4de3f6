"""Modules of tests.bench in processes of their own, each of which prints JSON.

Programs whose memory is measured import this module, so it imports little.
"""

import json
import subprocess
import sys
import threading
from typing import Any, Final, Self

DEADLINE_S: Final = 300.0


def start(module: str, *arguments: object, **options: Any) -> "subprocess.Popen[str]":
    """Args: options: of Popen; without them stdout is a pipe"""
    command = [sys.executable, "-m", f"tests.bench.{module}", *map(str, arguments)]
    return subprocess.Popen(command, text=True, **{"stdout": subprocess.PIPE, **options})


def answer_of(process: "subprocess.Popen[str]") -> Any:
    """The JSON that it prints until its end. Raises: AssertionError when it fails"""
    printed, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, f"{process.args!r} ended with {process.returncode}"
    return json.loads(printed)


class Teller:
    """A module that prints a line of JSON for each news until its end. Args: as of `start`"""

    def __init__(self, module: str, *arguments: object, **options: Any) -> None:
        self._process = start(module, *arguments, **options)
        threading.Thread(target=self._listen, name=module, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._on_news(json.loads(line))

    def _on_news(self, news: Any) -> None:
        """In a thread of its own."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)
