"""Folds the reports of the nodes that fetch a Model. The newest report of a node replaces the one
before.
"""

from collections.abc import Mapping
from typing import Any, Final

from globalmanager.kinds.shared.worker_status import WorkerFold

MAX_NODES: Final = 100
"""An entry has about 500 bytes, so the status of a Model for many nodes stays below 64 KiB."""


class ModelFold(WorkerFold):
    max_workers = MAX_NODES

    def __init__(self, status: Mapping[str, Any]) -> None:
        super().__init__(status, keep_greatest=False)
