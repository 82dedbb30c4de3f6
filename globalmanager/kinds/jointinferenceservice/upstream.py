"""fold: what an edge's report means for a JointInferenceService.

Called by the edge side. The report of a worker is kept whole under .status.workers; `plan` adds
up the totals from there, so nothing is counted twice.
"""

from globalmanager.status import fold

__all__ = ["fold"]
