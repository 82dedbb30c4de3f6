"""What edgeai promises of rounds of incremental learning.

- a round begins with the next number, and one that has ended never runs again
- a deployed model is that of a round whose evaluation has called it better
- when faults are over and the workers do their work, the job waits for samples, and says how its
  last round ended
"""

from collections import defaultdict
from typing import Final

from tests.simulation.api import Object

ROUNDS: Final = "incrementallearningjobs.edgeai.io"
NAME: Final = "rounds"
"""Of the job and its Dataset."""
BETTER: Final = 0.1
"""By so much the precision of a model that is deployed must be greater."""
_ENDS: Final = ("Deployed", "NotDeployed", "TrainFailed", "EvalFailed", "DeployFailed")


class RoundOracle:
    """Each method returns the promise that is broken; "": none is."""

    def __init__(self) -> None:
        self._better: dict[str, set[int]] = defaultdict(set)  # uid -> rounds called better
        self._ended: dict[str, int] = {}  # uid -> number of the last round that ended

    def evaluated(self, uid: str, number: int, *, is_better: bool) -> None:
        """A worker begins to tell the result of an evaluation."""
        self._better[uid] |= {number} if is_better else set()

    def problem_of_status(self, uid: str, old: Object, new: Object) -> str:
        number, before = new.get("round") or 0, old.get("round") or 0
        current, last = new.get("current") or {}, new.get("last") or {}
        if number not in (before, before + 1):
            return f"round {number} follows {before}"
        if number != before and old.get("current"):
            return f"round {number} begins in round {before}"
        if current and current["number"] != number:
            return f"round {current['number']} runs, and the last one is {number}"
        if current and current["number"] <= self._ended.get(uid, 0):
            return f"round {current['number']} runs again"
        deployed = (new.get("deployed") or {}).get("round", 0)
        if deployed and deployed not in self._better[uid]:
            return f"round {deployed} is deployed, and only {self._better[uid]} are better"
        self._ended[uid] = max(self._ended.get(uid, 0), last.get("round", 0))
        return ""

    def problem_of_pod(self, pod: str, uid: str, status: Object) -> str:
        if not pod.startswith(f"{NAME}-"):
            return ""
        number, current = int(pod.split("-")[-2]), status.get("current") or {}
        if number <= self._ended.get(uid, 0):
            return f"{pod} begins after the end of round {number}"
        if current.get("succeeded") and pod.endswith(f"-{number}-{current['attempt']}"):
            return f"{pod} runs again after its success"
        return ""

    def problem_at_end(self, status: Object, alive: set[str]) -> str:
        """Args: alive: pods that have not ended"""
        last = status.get("last") or {}
        if status.get("current") or alive:
            return f"the round does not end: {status}, {sorted(alive)}"
        if last and last["reason"] not in _ENDS:
            return f"the last round ended with {last}"
        return ""
