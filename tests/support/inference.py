"""A JointInferenceService whose edge worker counts samples: what its CR says, on any cluster."""

from collections.abc import Mapping
from typing import Any, Final

from edgeai.cli.api import Object, path_of
from tests.support.jobs import Api
from tests.support.waiting import eventually

COUNTS: Final = ("seen", "hard", "uploaded", "answeredByCloud", "fallbacks")
COUNTED_S: Final = 90.0  # a LocalController that was cut off dials again after a minute at most


def counts_of(result: Mapping[str, Any]) -> dict[str, int]:
    """Args: result: what an edge worker of the example prints at its end"""
    return {name: result["counts"][name] for name in COUNTS}


class CountingService:
    """Args: object_: as the API has it"""

    def __init__(self, api: Api, object_: Object) -> None:
        self.api = api
        self.name: str = object_["metadata"]["name"]
        self.path = path_of(object_)

    def status(self) -> dict[str, Any]:
        return dict(self.api.get(self.path).get("status") or {})

    def counts(self) -> dict[str, int]:
        """Those of COUNTS in status.metrics."""
        metrics = {entry["key"]: entry["value"] for entry in self.status().get("metrics") or ()}
        return {name: int(metrics[name]) for name in COUNTS if name in metrics}

    def wait_for_uploads(self, more_than: int = 0) -> int:
        """Until the CR counts more uploads than that. Returns: how many it counts"""

        def check() -> int:
            count: int = self.status().get("uploadCount") or 0
            assert count > more_than, f"uploadCount is {count}"
            return count

        return eventually(f"more than {more_than} uploads in the CR", check)

    def wait_for_exact_counts(self, expected: Mapping[str, int]) -> None:
        """Until the CR says exactly what the worker counted."""

        def check() -> bool:
            counts = {name: count for name, count in self.counts().items() if name in expected}
            assert counts == expected, f"the CR says {counts}, the worker {expected}"
            return True

        eventually("exact counts in the CR", check, timeout_s=COUNTED_S)
        assert self.status()["uploadCount"] == expected["uploaded"]

    def wait_for_condition(self, type_: str, status: str) -> None:
        def check() -> bool:
            conditions = {entry["type"]: entry for entry in self.status().get("conditions") or ()}
            condition = conditions.get(type_, {})
            assert condition.get("status") == status, f"it is {condition}"
            return True

        eventually(f"condition {type_}={status}", check)
