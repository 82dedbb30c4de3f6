"""Faults of a training job itself, which no pod shows."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from edgeai.api.objects import is_being_deleted
from edgeai.api.pod_state import phase_of
from edgeai.api.resources import Object
from edgeai.api.status import WAITING
from edgeai.faults.faults import Fault, job_fault
from edgeai.faults.pod_faults import examine
from globalmanager.contract import Observed
from globalmanager.kinds.shared import status
from globalmanager.kinds.shared.attempts import attempt_of
from globalmanager.kinds.shared.job_conditions import Conditions
from globalmanager.kinds.shared.lifecycle import Timers

TOO_LARGE: Final = "TooLarge"

RESTARTED_S: Final = 60.0
"""Seconds that a replica must run after a restart by the job before its failure is no fault."""


def is_first_failure(pod: Object) -> bool:
    """Whether the pod has failed, and its replica has not started again before. Where the replica
    starts again, the condition Restarting shows such a failure.
    """
    return phase_of(pod) == "Failed" and not attempt_of(pod) and not is_being_deleted(pod)


def refusal_fault(observed: Observed, conditions: Conditions) -> Fault | None:
    """Why the API refuses a child: its first answer about this generation, of several."""
    refusal = observed.refusal
    # A refusal with this reason passes by itself, as when a former child has not ended yet.
    if refusal is None or refusal.reason == WAITING:
        return None
    stall, generation = conditions.last_stall, status.status_of(observed).get("observedGeneration")
    # With another message for each try, a job without quota would write its status for ever.
    is_same = (stall.get("reason"), generation) == (refusal.reason, observed.generation)
    return job_fault(refusal.reason, str(stall.get("message")) if is_same else refusal.message)


def size_fault(
    observed: Observed, field: str, count: int, template_bytes: int, *, total_bytes: int
) -> Fault:
    """The stall of a job whose pods together are too large.

    Args:
        field: the template that takes most, in `count` pods
        total_bytes: sum of the templates of all pods, as JSON
    """
    limit = observed.settings.job_template_bytes
    detail = (
        f"{count} pods of {template_bytes} bytes; the templates of all pods of a job may have "
        f"{limit} bytes, and have {total_bytes}: make the template smaller, for example with a "
        "ConfigMap in place of many variables, or use fewer replicas. Pods that exist go on"
    )
    return job_fault(TOO_LARGE, f"{field}: {detail}")


def stall_suspension(pods: Iterable[Object], conditions: Conditions, now: datetime) -> Timers:
    """Set Stalled of a suspended job whose pods do not go. Returns: the waits until a change

    Args: pods: the pods that the job still has
    """
    # A suspended job wants no pod, so what keeps a pod from running is no fault of it.
    examination = examine(filter(is_being_deleted, pods), now)
    conditions.stall(examination.faults)
    return Timers().add(examination.next_s)
