"""fold of a Dataset: the number of samples that its node counted.

Called by the edge side. A worker's counts only grow; the number of samples may also shrink.
"""

from collections.abc import Mapping
from typing import Any, Final

from common.times import rfc3339
from globalmanager.contract import WorkerReport
from globalmanager.rules import status as rules

SAMPLES: Final = "numberOfSamples"


def fold(status: Mapping[str, Any], report: WorkerReport) -> dict[str, Any] | None:
    """Merge patch for the reporting node's entry, and numberOfSamples with its updateTime."""
    patch = rules.fold(status, report, keep_greatest=False)
    entry = rules.mapping(patch["workers"][report.worker]) if patch else {}
    number = rules.mapping(entry.get("taskInfo")).get(SAMPLES)
    if patch is None or number is None:
        return patch
    samples = max(int(number), 0)
    if samples == status.get(SAMPLES):
        return patch
    return {**patch, SAMPLES: samples, "updateTime": _counted_at(report)}


def _counted_at(report: WorkerReport) -> str | None:
    told = report.body.details.get("updateTime") or report.body.observed_at
    time = rules.parse_time(told)
    return rfc3339(time) if time else None
