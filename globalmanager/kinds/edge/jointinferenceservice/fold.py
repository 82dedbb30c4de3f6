"""Folds an edge worker's report into the .status of a JointInferenceService.

.status.workers keeps the whole report of each worker. The totals are sums over these entries and
never over reports, so no report counts twice. One patch writes the entry and the totals, which
halves the requests of a running service. `plan` corrects the totals if they ever differ from the
entries.
"""

from collections.abc import Mapping
from typing import Any

from edgeai.api.status import worker_entries
from globalmanager.contract import WorkerReport
from globalmanager.kinds.edge.jointinferenceservice import reachability, totals
from globalmanager.kinds.shared import worker_status


def fold(status: Mapping[str, Any], report: WorkerReport) -> dict[str, Any] | None:
    """The merge patch of .status for one report. None when the report changes nothing."""
    entry = worker_status.folded(status, report, counts=totals.COUNTS)
    if entry is None:
        return None
    # The sums are those of the status after this report, so the plan that follows finds nothing to
    # write (I12).
    after = {**status, "workers": {**worker_entries(status), report.worker: entry}}
    return {
        **worker_status.entry_patch(status, report.worker, entry),
        **totals.status_fields(after, report.group),
        **reachability.counted(status, after),
    }
