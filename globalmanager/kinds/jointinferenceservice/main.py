"""plan: what a JointInferenceService needs next.

Called by the engine whenever the service, its workers, their pods, the Models and Nodes it
refers to, or the contact to its edge changed. Pure and total.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from globalmanager.contract import Action, Observed, Plan
from globalmanager.kinds.jointinferenceservice import health, types, workers
from globalmanager.kinds.jointinferenceservice.downstream import assignments
from globalmanager.kinds.jointinferenceservice.types import RUNNING, Phase
from globalmanager.rules import children, contacts, references, status
from globalmanager.rules.objects import is_being_deleted
from globalmanager.rules.specs import InvalidSpec
from globalmanager.rules.status import Finding, Truth


def plan(observed: Observed, now: datetime) -> Plan:
    """Next actions and the whole status of one service. A default Plan means: converged.

    Args:
        now: UTC
    """
    if is_being_deleted(observed.object):
        return Plan()  # the garbage collector follows the owner references
    try:
        spec = types.read(observed.object)
    except InvalidSpec as error:
        return _conclude(observed, now, findings=(status.rejected(error), references.UNRESOLVED))
    missing = types.missing(observed, spec)
    actions = () if missing else children.reconcile(observed, workers.desired(observed, spec))
    findings = (status.accepted(workers.hints(spec)), references.resolved(missing))
    return _conclude(observed, now, findings=findings, actions=actions)


def _conclude(
    observed: Observed,
    now: datetime,
    *,
    findings: tuple[Finding, Finding],
    actions: Sequence[Action] = (),
) -> Plan:
    """The plan with the status that follows; `findings`: Accepted and ResolvedRefs."""
    nodes = assignments(observed).keys()
    running, phase = _refused(observed, *_running(observed, findings))
    connected, requeue_after_s = contacts.edge_connected(observed, nodes, now)
    found = [*findings, running, *([connected] if connected else [])]
    is_accepted = findings[0].truth is Truth.TRUE
    wanted = {
        "observedGeneration": observed.generation,
        "phase": str(phase if is_accepted else Phase.INVALID),
        "conditions": status.conditions(observed, found, now),
        "startTime": _start_time(observed, now, is_accepted=is_accepted),
        "edgeNodes": ",".join(sorted(nodes)) or None,
        **health.numbers(observed),
    }
    return Plan(
        actions=tuple(actions),
        status=status.subtree(observed, wanted),
        events=status.events(observed, found),
        requeue_after_s=requeue_after_s,
    )


def _running(observed: Observed, findings: tuple[Finding, Finding]) -> tuple[Finding, Phase]:
    """Running, or why there is nothing yet that could run."""
    obstacle = next((finding for finding in findings if finding.truth is Truth.FALSE), None)
    if obstacle is None or health.has_workers(observed):
        return health.running(observed)
    message = f"no worker was created: see condition {obstacle.type}"
    return Finding(RUNNING, Truth.FALSE, status.WAITING, message), Phase.PENDING


def _refused(observed: Observed, running: Finding, phase: Phase) -> tuple[Finding, Phase]:
    """What the API did not take is why there are no workers, or why they are the old ones."""
    refusal = observed.refusal
    if refusal is None:
        return running, phase
    if running.truth is Truth.TRUE:
        message = f"{running.message}; but {refusal.message}"
        return msgspec.structs.replace(running, message=message), phase
    phase = Phase.PENDING if refusal.reason == status.WAITING else Phase.FAILED
    return Finding(RUNNING, Truth.FALSE, refusal.reason, refusal.message), phase


def _start_time(observed: Observed, now: datetime, *, is_accepted: bool) -> Any:
    known = status.of(observed).get("startTime")
    if status.parse_time(known):
        return known
    return status.timestamp(now) if is_accepted else None
