"""How many pods one plan of a job may make, and when it may replace a failed pod."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from edgeai.api.pod_state import phase_of
from edgeai.api.resources import Object
from globalmanager.kinds.shared.lifecycle import pause_left_s

_RESTART_BASE_S: Final = 1.0
_RESTART_MAX_S: Final = 60.0
# A plan with all pods of a TFJob of 1,000 workers took 2 s, and everything else waited.
_MAX_NEW_PODS: Final = 100
_MAX_NEW_BYTES: Final = 4 * 1024 * 1024
"""In one plan, at least one pod. Each pod of a TFJob names all replicas, and has all variables of
its template, so all of a large job would take seconds and memory. The first cause the next plan.
"""
_LARGE_BYTES: Final = 64 * 1024
_LARGE_PODS_S: Final = 30.0
"""A job makes pods of a template larger than _LARGE_BYTES with at most _MAX_NEW_BYTES of templates
within _LARGE_PODS_S. The API server and the scheduler of Kubernetes 1.20 took 0.6 s of processor
for each pod of 1.1 MB, and the jobs of other namespaces wait for the same server.
"""


class NewPods(NamedTuple):
    """How many pods a plan may make."""

    most: int
    wait_s: float = 0.0
    """Seconds until a plan may make a pod; 0 for now."""


def new_pods(template_bytes: Iterable[int], pods: Iterable[Object], now: datetime) -> NewPods:
    """How many pods one plan may make. Args: template_bytes: of each template as JSON"""
    largest = max(template_bytes, default=1)
    most = max(1, min(_MAX_NEW_PODS, _MAX_NEW_BYTES // largest))
    if largest <= _LARGE_BYTES:
        return NewPods(most)
    # The pods say when they were made, so a restart gives a large job no second burst.
    creations = (pod["metadata"].get("creationTimestamp") for pod in pods)
    pauses_s = (pause_left_s(creation, _LARGE_PODS_S, now) for creation in creations)
    waits_s = sorted(pause_s for pause_s in pauses_s if pause_s > 0)
    recent = len(waits_s)
    # The wait ends when enough of the recent pods have left the window for one more.
    return NewPods(most - recent) if recent < most else NewPods(0, waits_s[recent - most])


def backoff_left_s(pod: Object, attempt: int, now: datetime) -> float:
    """Seconds until a failed pod may be replaced; 0 for one that runs: its whole job restarts."""
    if phase_of(pod) != "Failed":
        return 0.0
    wait_s = min(_RESTART_MAX_S, _RESTART_BASE_S * 2.0 ** min(attempt - 1, 32))
    return pause_left_s(pod["metadata"].get("creationTimestamp"), wait_s, now)
