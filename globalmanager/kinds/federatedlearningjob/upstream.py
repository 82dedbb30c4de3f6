"""fold: what a trainer's report means for a FederatedLearningJob.

Called by the edge side. The report is kept whole under .status.workers; `plan` makes round and
metrics of all of them. Rounds are no counts: a trainer that begins anew takes nothing back.
"""

from collections.abc import Mapping
from typing import Any

from globalmanager.contract import WorkerReport
from globalmanager.rules import status as rules


def fold(status: Mapping[str, Any], report: WorkerReport) -> dict[str, Any] | None:
    """Merge patch for .status; None when the report changes nothing."""
    return rules.fold(status, report, keep_greatest=False)
