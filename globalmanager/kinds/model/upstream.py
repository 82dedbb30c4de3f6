"""fold of a Model: nobody reports on it, since no node holds it."""

from collections.abc import Mapping
from typing import Any

from globalmanager.contract import WorkerReport


def fold(status: Mapping[str, Any], report: WorkerReport) -> None:
    """Called by the edge side; changes nothing."""
