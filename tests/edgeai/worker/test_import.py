"""The library is light and leaves its host process alone."""

import subprocess
import sys
from pathlib import Path

import edgeai.worker

CHECKOUT = Path(__file__).parents[3]

PROGRAM = """
import logging, signal, sys, threading
import edgeai.worker
for heavy in ("aiohttp", "structlog", "websockets", "sklearn", "yaml"):
    assert heavy not in sys.modules, heavy
assert threading.active_count() == 1
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
assert logging.getLogger().handlers == []
"""


def test_import_loads_nothing_heavy_and_changes_nothing() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, cwd=CHECKOUT)


def test_every_public_name_exists() -> None:
    assert all(hasattr(edgeai.worker, name) for name in edgeai.worker.__all__)
