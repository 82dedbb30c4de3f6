"""One TrainingJob at one moment, and what a plan reads from it: pods, inputs, status fields.

Nothing here makes an action.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from edgeai.api import pod_state
from edgeai.api.elastic import LAUNCHER, WORKER
from edgeai.api.objects import is_being_deleted, is_made_elsewhere
from edgeai.api.pod_state import phase_of
from edgeai.api.resources import PODS, Object, ObjectRef
from edgeai.api.status import condition_of, left_s
from globalmanager.contract import Observed
from globalmanager.kinds.elastic.trainingjob import launcher as launchers
from globalmanager.kinds.elastic.trainingjob import workers
from globalmanager.kinds.elastic.trainingjob.spec import TrainingJob, is_suspended
from globalmanager.kinds.elastic.trainingjob.states import JobState, Launcher
from globalmanager.kinds.shared import status
from globalmanager.kinds.shared.attempts import MAX_RESTARTS, attempt_of
from globalmanager.kinds.shared.job_conditions import Conditions
from globalmanager.kinds.shared.job_conditions import outcomes as of_all_kinds
from globalmanager.kinds.shared.silent_nodes import has_quota

KIND: Final = "TrainingJob"
STATES: Final = tuple(state for state in JobState if state is not JobState.NEW)
"""The types of the conditions."""
LAUNCHER_MISSING: Final = "LauncherMissing"
"""Reason of the condition Stalled while the launcher's pod is not there."""
WORKERS_MISSING: Final = "WorkersMissing"
"""Reason of the condition Stalled while pods of listed workers are not there."""
MISSING_S: Final = 5.0
"""A pod that is missing for this number of seconds is lost. The watch of a GlobalManager that has
just become the leader can be late. A job that has failed never runs again, and a healthy worker
would be replaced. A listed worker whose pod is being deleted counts as lost at once."""
# Not RESTARTING, where the launcher of the next attempt does not exist yet.
_HAVE_LAUNCHER: Final = (JobState.LAUNCHER_CREATED, JobState.RUNNING, JobState.SCALING)
_PHASES: Final = {
    "Running": Launcher.RUNNING,
    "Succeeded": Launcher.SUCCEEDED,
    "Failed": Launcher.FAILED,
}


class ElasticSnapshot(NamedTuple):
    """One job at one moment."""

    observed: Observed
    spec: TrainingJob
    now: datetime
    state: JobState
    conditions: Conditions
    restarts: int
    """How often the launcher was started again."""
    pods: Mapping[str, Object]
    """The workers' pods: name -> pod."""

    @property
    def text(self) -> str:
        return f"{KIND} {self.observed.ref.name}"


def state_of(observed: Observed) -> JobState:
    text = status.status_of(observed).get("phase")
    return JobState(text) if text in STATES else JobState.NEW


def count_in(observed: Observed, field: str) -> int:
    """A count in the status; 0 when the status has no such count."""
    number = status.status_of(observed).get(field)
    return number if type(number) is int and 0 < number <= MAX_RESTARTS else 0


# ---- the launcher -------------------------------------------------------------------------------


def launcher_ref(observed: Observed) -> ObjectRef:
    job = observed.ref
    return ObjectRef(PODS, job.namespace, launchers.launcher_name(job.name))


def launcher_pod(observed: Observed) -> Object | None:
    return observed.children.get(launcher_ref(observed))


def launcher_of(job: ElasticSnapshot) -> Launcher:
    """In states that have a launcher, a missing pod is PENDING, then LOST; else ABSENT."""
    pod = launcher_pod(job.observed)
    if pod is None:
        if job.state not in _HAVE_LAUNCHER:
            return Launcher.ABSENT
        is_late = missing_left_s(job, LAUNCHER_MISSING) <= 0
        return Launcher.LOST if is_late else Launcher.PENDING
    if is_worn(job, pod):
        return Launcher.ABSENT
    if is_being_deleted(pod):  # its processes end because of the deletion, with any exit code
        return Launcher.PENDING if job.state in _HAVE_LAUNCHER else Launcher.ABSENT
    # A launcher on a node without contact may still run, so Unknown is no end.
    return _PHASES.get(phase_of(pod), Launcher.PENDING)


def is_worn(job: ElasticSnapshot, pod: Object) -> bool:
    """Whether the launcher's pod is of an earlier attempt. The et-operator notes no attempt, so a
    pod that the et-operator made is worn as soon as the launcher restarts.
    """
    if is_made_elsewhere(pod):
        return job.state is JobState.RESTARTING
    return attempt_of(pod) < job.restarts


def is_launcher_missing(job: ElasticSnapshot) -> bool:
    return job.state in _HAVE_LAUNCHER and launcher_pod(job.observed) is None


def missing_left_s(job: ElasticSnapshot, reason: str) -> float:
    """Seconds until the pods that the condition Stalled with this reason names count as lost."""
    stall = job.conditions.last_stall
    # The transition time is older when the job has stalled for another reason before.
    since = stall.get("lastUpdateTime") if stall.get("reason") == reason else None
    return min(left_s(since, MISSING_S, job.now, unknown=MISSING_S), MISSING_S)


# ---- the workers --------------------------------------------------------------------------------


def ready_workers(pods: Mapping[str, Object]) -> frozenset[str]:
    """The workers on which the launcher can start processes."""
    return frozenset(name for name, pod in pods.items() if is_ready(pod))


def is_ready(pod: Object) -> bool:
    """Whether the pod runs, is not being deleted, and its node has contact."""
    # On a node that lost contact the phase stays Running, and only this condition tells it.
    ready = condition_of(pod, "Ready")
    is_unready = bool(ready) and ready.get("status") != "True"
    return phase_of(pod) == "Running" and pod_state.is_active(pod) and not is_unready


# ---- the status ---------------------------------------------------------------------------------


def numbers(observed: Observed, pods: Mapping[str, Object]) -> dict[str, Any]:
    """The field replicaStatuses. Args: pods: the workers' pods"""
    launcher = launcher_pod(observed)
    pods_by_role = {
        ("Launcher", LAUNCHER): [launcher] if launcher is not None else [],
        ("Worker", WORKER): list(pods.values()),
    }
    entries = {}
    for (type_, role), role_pods in pods_by_role.items():
        counts = {
            "active": sum(
                phase_of(pod) == "Running"
                and has_quota(observed, pod, is_suspended=is_suspended(observed.object))
                for pod in role_pods
            ),
            "succeeded": sum(phase_of(pod) == "Succeeded" for pod in role_pods),
            "failed": sum(phase_of(pod) == "Failed" for pod in role_pods),
        }
        labels = workers.labels(observed.ref.name, role)
        # An autoscaler finds the pods by this text of the scale subresource.
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        entries[type_] = {key: n for key, n in counts.items() if n} | {"selector": selector}
    return entries


def outcomes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, int]:
    """Outcome -> how often it has come with a write of .status, for metrics. Total."""
    numbers = [fields.get("restartCount") for fields in (before, after)]
    old, new = (number if type(number) is int else 0 for number in numbers)
    restarted = {"restarted": new - old} if new > old else {}
    return {**of_all_kinds(before, after), **restarted}
