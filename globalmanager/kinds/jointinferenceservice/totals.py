"""Sums over all edge workers. `upstream` calls this module for each report, `health` for each
plan.
"""

from collections.abc import Mapping
from typing import Any, Final

from globalmanager.rules import sedna
from globalmanager.rules import status as rules

COUNTS: Final = ("seen", "hard", "uploaded", "answeredByCloud", "fallbacks")


def of(status: Mapping[str, Any], group: str) -> dict[str, Any]:
    """The fields `uploadCount` and `metrics`, computed from .status.workers.

    Args: group: API group of the job. Sedna's group has Sedna's metrics, too
    """
    return {"uploadCount": rules.total(status, "uploaded"), "metrics": _metrics(status, group)}


def _metrics(status: Mapping[str, Any], group: str) -> list[dict[str, str]]:
    if not rules.workers(status):
        return []
    counts = {name: rules.total(status, name) for name in COUNTS}
    ratio = counts["uploaded"] / counts["seen"] if counts["seen"] else 0.0
    values = {
        **{name: str(count) for name, count in counts.items()},
        "uploadCloudRatio": f"{ratio:.4f}",
        **sedna.metrics(group, counts),
    }
    return [{"key": key, "value": value} for key, value in values.items()]
