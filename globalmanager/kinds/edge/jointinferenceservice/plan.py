"""Plans what a JointInferenceService needs next. The conditions and their order are in
edgeai/api/jointinferenceservice.py.
"""

from datetime import datetime

import msgspec

from edgeai.api import deletions
from edgeai.api.jointinferenceservice import JointInferenceServiceSpec, Phase
from edgeai.api.objects import is_being_deleted
from edgeai.api.status import STARTING, WAITING, Finding, Truth
from globalmanager.contract import Observed, Plan
from globalmanager.kinds.edge import references
from globalmanager.kinds.edge.jointinferenceservice import fleet as fleets
from globalmanager.kinds.edge.jointinferenceservice import (
    fleet_models,
    health,
    hot_models,
    model_rollout,
    reachability,
    workers,
)
from globalmanager.kinds.edge.jointinferenceservice import spec as types
from globalmanager.kinds.edge.jointinferenceservice.assignments import nodes
from globalmanager.kinds.edge.jointinferenceservice.fleet import Fleet
from globalmanager.kinds.edge.jointinferenceservice.spec import CLOUD, RUNNING
from globalmanager.kinds.shared import children, lifecycle, sedna, status
from globalmanager.kinds.shared.children import Stages
from globalmanager.kinds.shared.lifecycle import Timers


def plan(observed: Observed, now: datetime) -> Plan:
    if is_being_deleted(observed.object):
        return Plan()  # the garbage collector deletes the children by their owner references
    fleet = fleets.fleet_of(observed)
    # A wrong spec changes no child and no decision: the service goes on as its last valid one says.
    if observed.invalid is not None:
        findings = (status.rejected(observed.invalid), references.UNRESOLVED)
        return _conclude(observed, fleet, now, findings=findings)
    spec: JointInferenceServiceSpec = observed.spec
    obstacles = types.obstacles(observed, spec)
    findings = (status.accepted(workers.hints(observed, spec)), references.resolved(obstacles))
    # While a reference is missing, the plan has no stages at all. An empty desired set would delete
    # the workers of a running service when somebody deletes its Model.
    if obstacles:
        return _conclude(observed, fleet, now, findings=findings)
    stages, timers = _stages(observed, fleet, spec, now)
    return _conclude(observed, fleet, now, findings=findings, stages=stages, timers=timers)


def _stages(
    observed: Observed, fleet: Fleet | None, spec: JointInferenceServiceSpec, now: datetime
) -> tuple[Stages, Timers]:
    desired = workers.desired(observed, spec)
    if fleet is None:
        # The pods of a service that is no fleet any more are obsolete children.
        return children.reconcile(observed, desired, workers.OWNS), Timers()
    stages = children.reconcile(fleets.without_pods(observed), desired, workers.OWNS)
    template = workers.fleet_template(observed, spec)
    pods, timers = fleets.stages(observed, fleet, template, now)
    # The Secret and the Service come before the workers that use them.
    return (*stages, *pods), timers


def _conclude(
    observed: Observed,
    fleet: Fleet | None,
    now: datetime,
    *,
    findings: tuple[Finding, Finding],
    stages: Stages = (),
    timers: Timers = Timers(),  # noqa: B008 - frozen
) -> Plan:
    """The plan with the computed status. `findings` are the conditions Accepted and
    ResolvedRefs.
    """
    edge_nodes = nodes(observed) if fleet is None else fleets.nodes_of(fleet)
    spec: JointInferenceServiceSpec | None = observed.spec
    is_hot = spec is None or spec.edge_worker.model.is_hot
    reports = fleet_models.reports_of(observed) if fleet and is_hot else {}
    rollout = model_rollout.NO_PROGRESS
    if spec is not None:
        rollout = model_rollout.advanced(observed, fleet, reports, now)
    view, sums = fleets.with_sums(observed)
    if fleet is not None:
        view = fleets.condensed(view, fleet)
    running, running_phase = _running(view, fleet, findings, now)
    running, running_phase = hot_models.with_models(view, fleet, reports, running, running_phase)
    running, running_phase = _with_refusal(view, running, running_phase)
    acceptance = findings[0]
    is_accepted = acceptance.truth is Truth.TRUE
    # The phase Invalid shows a wrong spec in `kubectl get`, also while the workers of the last
    # valid spec run. Condition Running still says that they do.
    phase = sedna.phase(view, running_phase if is_accepted else Phase.INVALID)
    failed = sedna.failed(view, phase, because=running if is_accepted else acceptance)
    cloud = reachability.reachability(view, now)
    numbers = {**health.numbers(view), **sums, **cloud.fields}
    versions = fleet_models.counted(reports, fleet) if fleet else []
    conclusion = lifecycle.conclude(
        view,
        now,
        findings=[*findings, running, *rollout.findings, *cloud.findings, *failed],
        phase=phase,
        nodes=edge_nodes,
        fields={**numbers, **fleets.status_fields(view, fleet, versions), **rollout.fields},
        examination=health.examine(view, now),
        stages=stages,
        timers=timers.add(cloud.check_in_s, rollout.check_in_s),
    )
    events = (*conclusion.events, *rollout.events)
    conclusion = msgspec.structs.replace(conclusion, events=events)
    return conclusion if fleet is None else fleets.paced(observed, conclusion, now)


def _running(
    observed: Observed, fleet: Fleet | None, findings: tuple[Finding, Finding], now: datetime
) -> tuple[Finding, Phase]:
    """The condition Running. Without workers, the condition says why there are none yet."""
    # Where workers run, their state counts: the fault of an edit has a condition of its own.
    cause = next((finding for finding in findings if finding.truth is Truth.FALSE), None)
    if cause is None or health.has_workers(observed):
        running, phase = health.running(observed, now)
        is_waiting = running.reason == STARTING and health.is_available(observed, CLOUD)
        has_nodes = fleet is None or fleet.nodes
        return (running if has_nodes or not is_waiting else fleets.NO_NODES), phase
    message = f"no worker was created: see condition {cause.type}"
    return Finding(RUNNING, Truth.FALSE, WAITING, message), Phase.PENDING


def _with_refusal(observed: Observed, running: Finding, phase: Phase) -> tuple[Finding, Phase]:
    """The condition Running with the API's refusal. The refusal is the reason why workers are
    missing or out of date.
    """
    refusal = observed.refusal
    if refusal is None:
        return running, phase
    # The refusal stops an update of the service, and not the workers that already serve.
    if running.truth is Truth.TRUE:
        message = f"{running.message}; but {refusal.message}"
        return msgspec.structs.replace(running, message=message), phase
    # These refusals pass by themselves, as when the former child of the same name is still being
    # deleted.
    waits = refusal.reason in (WAITING, deletions.TERMINATING)
    phase = Phase.PENDING if waits else Phase.FAILED
    return Finding(RUNNING, Truth.FALSE, refusal.reason, refusal.message), phase
