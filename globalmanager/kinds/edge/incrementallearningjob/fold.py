"""Folds the reports of the workers into the .status of an IncrementalLearningJob."""

from collections.abc import Mapping
from typing import Any

from globalmanager.kinds.shared.worker_status import WorkerFold


def fold(status: Mapping[str, Any]) -> WorkerFold:
    # With the greatest numbers of all ledgers, a metric could never fall again.
    return WorkerFold(status, keep_greatest=False)
