"""Folds the reports of the nodes that fetch a Model. The newest report of a node replaces the one
before.
"""

from typing import Final

from globalmanager.kinds.shared.worker_status import LatestFold

MAX_NODES: Final = 100
"""An entry has about 500 bytes, so the status of a Model for many nodes stays below 64 KiB."""


class ModelFold(LatestFold):
    max_workers = MAX_NODES
