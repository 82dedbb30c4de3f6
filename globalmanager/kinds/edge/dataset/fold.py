"""Folds the report of a Dataset's node: the number of samples that the node has counted.

The counts of other workers only grow. A number of samples may shrink.
"""

from collections.abc import Mapping
from typing import Any, Final

from edgeai.api.status import mapping, parse_time
from edgeai.times import rfc3339
from globalmanager.kinds.shared.worker_status import LatestFold

SAMPLES: Final = "numberOfSamples"


class DatasetFold(LatestFold):
    def patch(self) -> dict[str, Any]:
        """With numberOfSamples and updateTime if the number of samples has changed."""
        patch = super().patch()
        for worker in patch.get("workers", ()):
            entry = self.entries[worker]
            number = mapping(entry.get("taskInfo")).get(SAMPLES)
            # The time of an unchanged number is no news.
            if number is not None and max(int(number), 0) != self.status.get(SAMPLES):
                patch |= {SAMPLES: max(int(number), 0), "updateTime": _counted_at(entry)}
        return patch


def _counted_at(entry: Mapping[str, Any]) -> str | None:
    # The report of a node without contact may come days after the count.
    text = mapping(entry.get("details")).get("updateTime") or entry.get("observedAt")
    time = parse_time(text)
    return rfc3339(time) if time else None
