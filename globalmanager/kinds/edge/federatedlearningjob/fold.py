"""Folds the reports of trainers into the .status of a FederatedLearningJob.

.status.workers keeps the whole report. `plan` computes round and metrics from all entries. A round
is not a count, so the newest report replaces the older report.
"""

from collections.abc import Mapping
from typing import Any

from globalmanager.kinds.shared.worker_status import WorkerFold


def fold(status: Mapping[str, Any]) -> WorkerFold:
    # With the greatest numbers of all ledgers, a round or a loss could never fall again.
    return WorkerFold(status, keep_greatest=False)
