"""Folds the report of a Dataset's node: the number of samples that the node has counted.

The counts of other workers only grow. A number of samples may shrink.
"""

from collections.abc import Mapping
from typing import Any, Final

from edgeai.api.status import mapping, parse_time
from edgeai.times import rfc3339
from globalmanager.contract import WorkerReport
from globalmanager.kinds.shared import worker_status

SAMPLES: Final = "numberOfSamples"


def fold(status: Mapping[str, Any], report: WorkerReport) -> dict[str, Any] | None:
    """The merge patch of .status for one report. None when the report changes nothing.

    The patch replaces the node's entry in .status.workers. If the number of samples has changed,
    the patch also sets numberOfSamples and updateTime.
    """
    patch = worker_status.fold(status, report, keep_greatest=False)
    entry = mapping(patch["workers"][report.worker]) if patch else {}
    number = mapping(entry.get("taskInfo")).get(SAMPLES)
    if patch is None or number is None:
        return patch
    samples = max(int(number), 0)
    # The time of an unchanged number is no news (I12).
    if samples == status.get(SAMPLES):
        return patch
    return {**patch, SAMPLES: samples, "updateTime": _counted_at(report)}


def _counted_at(report: WorkerReport) -> str | None:
    # The report of a node without contact may come days after the count.
    text = report.body.details.get("updateTime") or report.body.observed_at
    time = parse_time(text)
    return rfc3339(time) if time else None
