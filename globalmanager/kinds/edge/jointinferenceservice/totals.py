"""Sums over all edge workers, computed from .status.workers."""

from collections.abc import Mapping
from typing import Any, Final

from globalmanager.kinds.shared import sedna, worker_status

FIELDS: Final = frozenset({"uploadCount", "metrics"})
"""The fields of .status that `status_fields` computes."""
COUNTS: Final = ("seen", "hard", "uploaded", "answeredByCloud", "fallbacks")


def status_fields(status: Mapping[str, Any], group: str) -> dict[str, Any]:
    """The fields `uploadCount` and `metrics`, computed from .status.workers. A count that no worker
    has told is left out, because 0 would be a claim: Sedna's library, for example, never tells
    whether the cloud has answered.

    Args: group: API group of the job. Sedna's group has Sedna's metrics, too
    """
    totals = {name: worker_status.total(status, name) for name in COUNTS}
    counts = {name: count for name, count in totals.items() if count is not None}
    return {"uploadCount": counts.get("uploaded"), "metrics": _metrics(counts, group)}


def _metrics(counts: Mapping[str, int], group: str) -> list[dict[str, str]]:
    """Args: counts: the counts that a worker has told"""
    values = {name: str(count) for name, count in counts.items()}
    if {"seen", "uploaded"} <= counts.keys():
        ratio = counts["uploaded"] / counts["seen"] if counts["seen"] else 0.0
        values["uploadCloudRatio"] = f"{ratio:.4f}"
    # Sedna's ratio has the same key and replaces edgeai's, so a key stands in the list once.
    values |= sedna.metrics(group, counts)
    return [{"key": key, "value": value} for key, value in values.items()]
