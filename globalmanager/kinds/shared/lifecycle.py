"""The life of a job: finished workers, replaced pods, deadlines, clean-up and the end.

Pure: the only clock is `now`. `Timers`, waits until actions, become `Plan.requeue_after_s`.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from edgeai.api import pod_state
from edgeai.api.objects import is_being_deleted
from edgeai.api.pod_state import phase_of
from edgeai.api.resources import PODS, Object, ResourceType, ref_of
from edgeai.api.status import Finding, Truth, left_s, parse_time
from edgeai.api.training import CleanPods
from edgeai.faults import faults
from edgeai.faults.faults import STALLED
from edgeai.faults.pod_faults import NO_FAULTS, Examination
from edgeai.ids import NodeName
from edgeai.times import rfc3339
from globalmanager.contract import Delete, Observed, Plan
from globalmanager.kinds.shared import contacts, overridden, status
from globalmanager.kinds.shared.children import Stages

MAX_FINISHED: Final = 2000
"""Further names in .status.finished are ignored, because a user can write anything into a
status.
"""


class Timers(msgspec.Struct, frozen=True):
    """Waits in seconds, after each of which the engine plans the job without a change, too."""

    waits_s: tuple[float, ...] = ()

    def add(self, *waits_s: float | None) -> "Timers":
        """A copy with these waits added. A wait that is over, infinite or None is not added."""
        # A wait of zero would plan the job again at once, and then again, for ever.
        pending = (wait for wait in waits_s if wait is not None and 0 < wait < math.inf)
        return Timers((*self.waits_s, *pending))

    @property
    def next_s(self) -> float | None:
        return min(self.waits_s, default=None)


# ---- time ---------------------------------------------------------------------------------------


def pause_left_s(since: Any, pause_s: float, now: datetime) -> float:
    """Seconds until a pause that began at `since` is over. A time that lies ahead by more than the
    pause comes from another clock, and the pause is over, as when `since` is not a time.
    """
    rest_s = left_s(since, pause_s, now, unknown=0.0)
    return rest_s if rest_s <= 2 * pause_s else 0.0


def first_time(observed: Observed, field: str, now: datetime, *, is_due: bool) -> Any:
    """The time in .status.<field>. The time never changes after it was set.

    Returns: the time in the status; if the status has no time, `now` when `is_due`, else None
    """
    # The status remembers the moment over restarts. A text that is no time is replaced.
    time = status.status_of(observed).get(field)
    if parse_time(time):
        return time
    return rfc3339(now) if is_due else None


def is_new(observed: Observed) -> bool:
    return parse_time(status.status_of(observed).get("startTime")) is None and not observed.children


# ---- pods ---------------------------------------------------------------------------------------


def own_pods(observed: Observed) -> list[Object]:
    """The pods that the job itself created, not through a Deployment."""
    return [child for ref, child in observed.children.items() if ref.type == PODS]


def finished(observed: Observed, *, among: Collection[str] | None = None) -> list[str]:
    """Names of the pods of workers that are done, whether or not the pods still exist.

    A worker that has succeeded once never runs again, because `.status.finished` keeps its name.

    Args: among: names of the workers that the spec has; None: all workers that were ever done
    """
    value = status.status_of(observed).get("finished")
    names = [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
    succeeded = [
        pod["metadata"]["name"] for pod in own_pods(observed) if phase_of(pod) == "Succeeded"
    ]
    # The status alone is not enough: a pod that has succeeded since the last write counts at once.
    workers = {*names[:MAX_FINISHED], *succeeded}
    # Sorted, because the list goes into the status: another order would be a write.
    return sorted(workers if among is None else workers.intersection(among))


def deletions(observed: Observed, *, besides: Collection[ResourceType] = ()) -> tuple[Delete, ...]:
    """The deletions of all children. Args: besides: types whose children stay"""
    return tuple(
        Delete(ref, child["metadata"]["uid"])
        for ref, child in observed.children.items()
        if ref.type not in besides and not is_being_deleted(child)
    )


def deletion(pod: Object) -> Delete:
    return Delete(ref_of(PODS, pod), pod["metadata"]["uid"])


def replacement(
    pods: Iterable[Object], now: datetime, *, after_s: float
) -> tuple[tuple[Delete, ...], Timers]:
    """Deletions of failed pods that are old enough, and the wait until the next one is.

    Args: after_s: least age of a pod that is replaced: a node that refuses one does so at once
    """
    failed = [pod for pod in pods if phase_of(pod) == "Failed"]
    waits = {
        pod["metadata"]["name"]: pause_left_s(
            pod["metadata"].get("creationTimestamp"), after_s, now
        )
        for pod in failed
    }
    due = (pod for pod in failed if waits[pod["metadata"]["name"]] <= 0)
    deletions = tuple(deletion(pod) for pod in due if not is_being_deleted(pod))
    return deletions, Timers().add(*waits.values())


def clean_up(pods: Sequence[Object], policy: CleanPods = CleanPods.RUNNING) -> tuple[Delete, ...]:
    """The deletions that `policy` demands at the end of a job.

    A pod that has not started goes under every policy. It has no logs to keep, and it would
    start later without its job, or wait for ever for a worker that has ended.
    """
    active = [pod for pod in pods if pod_state.is_active(pod)]
    selection = {
        CleanPods.ALL: [pod for pod in pods if not is_being_deleted(pod)],
        CleanPods.RUNNING: active,
        CleanPods.NONE: [pod for pod in active if phase_of(pod) == "Pending"],
    }
    return tuple(deletion(pod) for pod in selection[policy])


# ---- the end ------------------------------------------------------------------------------------


def has_ended(observed: Observed, ends: Iterable[str]) -> bool:
    """Whether one of the conditions `ends` is True. These conditions are final."""
    return any(status.condition(observed, end).get("status") == Truth.TRUE for end in ends)


def deletion_after(
    observed: Observed, ttl_s: float | None, now: datetime, *, since: Any = None
) -> tuple[tuple[Delete, ...], Timers]:
    """The deletion of the job itself, `ttl_s` seconds after `since`.

    Args: since: RFC 3339 time; .status.completionTime when it is None
    """
    # A job that has not ended has no such time, so nothing is due.
    rest_s = left_s(since or status.status_of(observed).get("completionTime"), ttl_s, now)
    due = (Delete(observed.ref, observed.uid),) if rest_s <= 0 else ()
    return due, Timers().add(rest_s)


def conclude(
    observed: Observed,
    now: datetime,
    *,
    findings: Sequence[Finding],
    end: Finding | None = None,
    phase: str,
    nodes: Collection[NodeName] = (),
    fields: Mapping[str, Any],
    examination: Examination = NO_FAULTS,
    stages: Stages = (),
    timers: Timers = Timers(),  # noqa: B008 - frozen
) -> Plan:
    """The plan of a job with workers, with the status fields that all such jobs share.

    Args:
        findings: the conditions before EdgeConnected and Overridden, Accepted first
        end: the final condition, when the job has ended
        nodes: the nodes where the job has workers that report
        fields: the other fields of .status
        examination: the faults of the workers, for the condition Stalled of a job that goes on
    """
    connected, contact_in_s = contacts.edge_connected(observed, nodes, now)
    last_stall = status.condition(observed, STALLED)
    # A job that has ended waits for nothing.
    stall = faults.stalled_finding(last_stall, examination.faults) if end is None else None
    # Always this order: the lists are compared, and another order would be a write.
    others = (connected, overridden.finding(observed, stages), stall, end)
    conditions = [*findings, *(finding for finding in others if finding is not None)]
    is_accepted = findings[0].truth is Truth.TRUE
    status_fields = {
        "observedGeneration": observed.generation,
        "phase": phase,
        "conditions": status.conditions(observed, conditions, now),
        # A spec that was never accepted has started nothing.
        "startTime": first_time(observed, "startTime", now, is_due=is_accepted),
        "edgeNodes": ",".join(sorted(nodes)) or None,
        **fields,
    }
    return Plan(
        stages=stages,
        status=status.subtree(observed, status_fields),
        events=status.events(observed, conditions),
        requeue_after_s=timers.add(contact_in_s, examination.next_s).next_s,
    )
