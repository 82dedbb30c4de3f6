"""Condition Running, the phase and the numbers of a JointInferenceService.

Called by `main`. This module reads the objects that exist and never the spec. So the status of
running workers is right also while the spec is wrong.
"""

from collections.abc import Mapping
from typing import Any

from globalmanager.contract import DEPLOYMENTS, Observed
from globalmanager.kinds.jointinferenceservice import totals
from globalmanager.kinds.jointinferenceservice.types import CLOUD, EDGE, RUNNING, Phase
from globalmanager.kinds.jointinferenceservice.workers import deployment_name
from globalmanager.rules import faults, status
from globalmanager.rules.faults import PodFault
from globalmanager.rules.objects import has_role
from globalmanager.rules.status import STARTING, Finding, Truth


def running(observed: Observed) -> tuple[Finding, Phase]:
    """The condition Running, and the phase that belongs to the condition."""
    faulty = {role: fault for role in (CLOUD, EDGE) if (fault := _fault(observed, role))}
    absent = [role for role in (CLOUD, EDGE) if not is_available(observed, role)]
    if not absent:
        message = "both workers are available" + _at_fault(faulty, "; but ")
        return Finding(RUNNING, Truth.TRUE, "WorkersAvailable", message), Phase.RUNNING
    culprits = {role: faulty[role] for role in absent if role in faulty}
    if not culprits:
        message = f"not available yet: {' and '.join(absent)} worker"
        return Finding(RUNNING, Truth.FALSE, STARTING, message), Phase.PENDING
    worst = min(culprits.values(), key=lambda fault: fault.is_pending)
    phase = Phase.PENDING if worst.is_pending else Phase.FAILED
    return Finding(RUNNING, Truth.FALSE, worst.reason, _at_fault(culprits)), phase


def has_workers(observed: Observed) -> bool:
    return any(_deployment(observed, role) for role in (CLOUD, EDGE))


def is_available(observed: Observed, role: str) -> bool:
    state = status.mapping(_deployment(observed, role).get("status"))
    conditions = state.get("conditions")
    entries = conditions if isinstance(conditions, list) else []
    return any(
        entry.get("type") == "Available" and entry.get("status") == "True"
        for entry in map(status.mapping, entries)
    )


def _deployment(observed: Observed, role: str) -> Mapping[str, Any]:
    name = deployment_name(observed.ref.name, role)
    found = (
        child
        for ref, child in observed.children.items()
        if ref.type == DEPLOYMENTS and ref.name == name
    )
    return next(found, {})


def _fault(observed: Observed, role: str) -> PodFault | None:
    return faults.first_fault(pod for pod in observed.pods if has_role(pod, role))


def _at_fault(faulty: Mapping[str, PodFault], prefix: str = "") -> str:
    told = "; ".join(f"{role} worker: {fault.message}" for role, fault in faulty.items())
    return prefix + told if told else ""


def numbers(observed: Observed) -> dict[str, Any]:
    """The numbers of .status: pods counted from the observed pods, samples from the edges'
    reports.
    """
    return {
        "active": sum(faults.is_active(pod) for pod in observed.pods),
        "failed": sum(faults.phase_of(pod) == "Failed" for pod in observed.pods),
        **totals.of(status.of(observed), observed.type.group),
    }
