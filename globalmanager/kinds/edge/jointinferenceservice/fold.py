"""Folds the reports of edge workers into the .status of a JointInferenceService.

.status.workers keeps the whole report of each worker. The totals are sums over these entries and
never over reports, so no report counts twice. One patch writes the entries and the totals, which
halves the requests of a running service. `plan` corrects the totals if they ever differ from the
entries.
"""

from typing import Any

from globalmanager.contract import WorkerReport
from globalmanager.kinds.edge.jointinferenceservice import reachability, totals
from globalmanager.kinds.shared.worker_status import WorkerFold


class ServiceFold(WorkerFold):
    lasting_counts = totals.COUNTS
    _group = ""  # the API group of the job, from its reports

    def add(self, report: WorkerReport) -> None:
        super().add(report)
        self._group = report.group

    def patch(self) -> dict[str, Any]:
        patch = super().patch()
        if not patch:
            return {}
        # The sums are those of the status after the reports, so the plan that follows finds nothing
        # to write.
        return {
            **patch,
            **totals.status_fields(self.after, self._group),
            **reachability.counted(self.status, self.after),
        }
