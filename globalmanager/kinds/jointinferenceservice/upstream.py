"""fold: what an edge's report means for a JointInferenceService.

Called by the edge side. The report of a worker is kept whole under .status.workers; the totals
are added up from there, never from the report, so nothing is counted twice. They go into the
same patch: that halves the requests of a running service. `plan` writes them too, if they ever
differ.
"""

from collections.abc import Mapping
from typing import Any

from globalmanager.contract import WorkerReport
from globalmanager.kinds.jointinferenceservice import totals
from globalmanager.rules import status as rules


def fold(status: Mapping[str, Any], report: WorkerReport) -> dict[str, Any] | None:
    """Merge patch for .status; None when the report changes nothing."""
    entry = rules.folded(status, report)
    if entry is None:
        return None
    workers = {**rules.workers(status), report.worker: entry}
    return {
        **rules.entry_patch(status, report.worker, entry),
        **totals.of({"workers": workers}),
    }
