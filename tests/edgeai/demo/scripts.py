"""Starts an example's script by its path, as a workerSpec runs it, with a clean environment."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]


@contextlib.contextmanager
def started(script: Path, variables: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKOUT), **variables}
    command = [sys.executable, str(script)]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()
