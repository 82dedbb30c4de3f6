"""Modules of tests.bench in processes of their own, each of which prints JSON.

Programs whose memory is measured import this module, so it imports little.
"""

import json
import subprocess
import sys
from typing import Any, Final

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
