"""Folds a trainer's report into the .status of a FederatedLearningJob.

.status.workers keeps the whole report. `plan` computes round and metrics from all entries. A round
is not a count, so the newest report replaces the older report.
"""

from collections.abc import Mapping
from typing import Any

from globalmanager.contract import WorkerReport
from globalmanager.kinds.shared import worker_status


def fold(status: Mapping[str, Any], report: WorkerReport) -> dict[str, Any] | None:
    """The merge patch of .status for one report. None when the report changes nothing."""
    # With the greatest numbers of all ledgers, a round or a loss could never fall again.
    return worker_status.fold(status, report, keep_greatest=False)
