"""plan: what a FederatedLearningJob needs next.

Called by the engine whenever the job, its workers' pods, the Models, Datasets and Nodes it refers
to, or the contact to its edges changed. Pure and total.

A worker is done when its pod has succeeded; .status.finished keeps that, so the pod may be
collected. A pod that failed was taken from its node (its containers are restarted there): it is
replaced, but not at once again and again. Only a deadline of its own fails the job. Once the
aggregator has succeeded there is nothing left to take part in: no trainer is made any more, those
that still run after a while are ended, since they may wait for ever, and the job is complete with
the last one that ends, in whatever way.
"""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from globalmanager.contract import (
    PODS,
    Action,
    Delete,
    Object,
    ObjectRef,
    Observed,
    Plan,
    ref_of,
)
from globalmanager.kinds.federatedlearningjob import progress, types, workers
from globalmanager.kinds.federatedlearningjob.downstream import assignments
from globalmanager.kinds.federatedlearningjob.types import (
    COMPLETE,
    FAILED,
    TRAINING,
    FederatedLearningJobSpec,
    Phase,
)
from globalmanager.rules import children, contacts, faults, references, status
from globalmanager.rules.faults import phase_of
from globalmanager.rules.objects import is_being_deleted
from globalmanager.rules.specs import InvalidSpec, accepted
from globalmanager.rules.status import Finding, Truth

REPLACED_AFTER_S: Final = 30.0
"""Least age of a failed pod that is replaced: a node that refuses a pod does so at once."""
LEFT_WAITING_S: Final = 300.0
"""After the aggregator has succeeded: time for trainers to save what they have. One that came too
late for the result never learns of it; it cannot be told apart from one that is slow."""
MAX_NAMED: Final = 5  # workers in a message
_DEADLINE: Final = "DeadlineExceeded"
_END: Final = (COMPLETE, FAILED)


class Outcome(NamedTuple):
    """Condition Training, the phase that goes with it, and at the end one condition more."""

    training: Finding
    phase: Phase
    end: Finding | None = None


def plan(observed: Observed, now: datetime) -> Plan:
    """Next actions and the whole status of one job. A default Plan means: converged.

    Args:
        now: UTC
    """
    if is_being_deleted(observed.object):
        return Plan()  # the garbage collector follows the owner references
    if ended(observed):
        return _cleared(observed, now)
    spec: FederatedLearningJobSpec | None = None
    missing: tuple[references.Missing, ...] = ()
    try:
        spec = types.read(observed.object)
        missing = types.missing(observed, spec)
        findings = (status.accepted(_note(observed, spec)), references.resolved(missing))
    except InvalidSpec as error:
        findings = (status.rejected(error), references.UNRESOLVED)
    outcome = _outcome(observed, spec)
    if outcome.end is not None:
        actions = _stop(observed)
    elif _has_result(observed):
        actions = _stop(observed) if _result_age_s(observed, now) >= LEFT_WAITING_S else ()
    elif spec is None or missing:
        actions = ()
    else:
        actions = _reconcile(observed, spec, now)
    actions += _told_to_model(observed, spec, now)
    return _conclude(observed, now, spec, findings=findings, outcome=outcome, actions=actions)


def ended(observed: Observed) -> bool:
    return any(status.condition(observed, end).get("status") == Truth.TRUE for end in _END)


def _note(observed: Observed, spec: FederatedLearningJobSpec) -> str:
    model = types.result(observed, spec)
    other = progress.newer_job(observed, model)
    if not other:
        return ""
    text = f"the spec can be carried out; but {model} has the rounds of job {other}, made later"
    return f"{text}: give each job a Model of its own, or the last to end overwrites the other"


def _told_to_model(
    observed: Observed, spec: FederatedLearningJobSpec | None, now: datetime
) -> tuple[Action, ...]:
    if spec is None:
        return ()
    trainers = _trainers(observed, spec)
    return progress.told_to_model(observed, trainers, types.result(observed, spec), now)


# ---- workers ------------------------------------------------------------------------------------


def finished(observed: Observed, spec: FederatedLearningJobSpec | None = None) -> list[str]:
    """Names of the pods of workers that are done, whether or not the pods are still there.

    Args: spec: without those that an edit has left out
    """
    told = status.of(observed).get("finished")
    known = [name for name in told if isinstance(name, str)] if isinstance(told, list) else []
    succeeded = [p["metadata"]["name"] for p in _own_pods(observed) if phase_of(p) == "Succeeded"]
    done = {*known[: types.MAX_TRAINERS + 1], *succeeded}
    return sorted(done if spec is None else done & {*workers.names(spec, observed.ref.name)})


def _reconcile(
    observed: Observed, spec: FederatedLearningJobSpec, now: datetime
) -> tuple[Action, ...]:
    done = [ObjectRef(PODS, observed.ref.namespace, name) for name in finished(observed, spec)]
    lost = [pod for pod in _own_pods(observed) if phase_of(pod) == "Failed"]
    settled = [*done, *(ref_of(PODS, pod) for pod in lost)]
    replaced = [
        _delete(pod)
        for pod in lost
        if _age_s(pod, now) >= REPLACED_AFTER_S and not is_being_deleted(pod)
    ]
    return (
        *replaced,
        *children.reconcile(observed, workers.desired(observed, spec), settled=settled),
    )


def _has_result(observed: Observed) -> bool:
    """The aggregator has succeeded."""
    return workers.aggregator_name(observed.ref.name) in finished(observed)


def _stop(observed: Observed) -> tuple[Action, ...]:
    """At the end nobody is left waiting for the others."""
    return tuple(_delete(pod) for pod in _own_pods(observed) if faults.is_active(pod))


def _delete(pod: Object) -> Delete:
    return Delete(ref_of(PODS, pod), pod["metadata"]["uid"])


def _own_pods(observed: Observed) -> list[Object]:
    return [child for ref, child in observed.children.items() if ref.type == PODS]


def _age_s(pod: Object, now: datetime) -> float:
    return _since_s(pod["metadata"].get("creationTimestamp"), now, unknown=math.inf)


def _result_age_s(observed: Observed, now: datetime) -> float:
    """Since the aggregator was seen to have succeeded, by this clock alone: nodes' may be wrong."""
    return _since_s(status.of(observed).get("resultTime"), now, unknown=0.0)


def _since_s(time: Any, now: datetime, *, unknown: float) -> float:
    began = status.parse_time(time)
    return unknown if began is None else (now - began).total_seconds()


def _requeue_after_s(observed: Observed, now: datetime) -> float | None:
    """Until the next pod is due: a failed one to be replaced, or one left waiting to be ended."""
    pods = _own_pods(observed)
    waits = [REPLACED_AFTER_S - _age_s(pod, now) for pod in pods if phase_of(pod) == "Failed"]
    if _has_result(observed) and any(map(faults.is_active, pods)):
        waits.append(LEFT_WAITING_S - _result_age_s(observed, now))
    return min((wait for wait in waits if wait > 0), default=None)


# ---- status -------------------------------------------------------------------------------------


def _outcome(observed: Observed, spec: FederatedLearningJobSpec | None) -> Outcome:
    pods = _own_pods(observed)
    failed = next((pod for pod in pods if _has_failed_for_good(pod)), None)
    if failed is not None:
        message = str(status.mapping(failed.get("status")).get("message") or _DEADLINE)
        text = f"pod {failed['metadata']['name']}: {message}"
        return _end(FAILED, Phase.FAILED, _DEADLINE, text)
    done = finished(observed, spec)
    expected = {*workers.names(spec, observed.ref.name)} if spec is not None else set()
    if expected and expected <= {*done}:
        return _end(COMPLETE, Phase.SUCCEEDED, "Complete", "every worker has succeeded")
    if _has_result(observed) and not any(map(faults.is_active, pods)):
        missed = ", ".join(sorted(expected - {*done}))
        message = "the aggregator has succeeded"
        message += f"; ended before they had the result: {missed}" if missed else ""
        return _end(COMPLETE, Phase.SUCCEEDED, "Complete", message)
    fault = faults.first_fault(pods)
    if fault is not None:
        return Outcome(Finding(TRAINING, Truth.FALSE, fault.reason, fault.message), Phase.PENDING)
    return _underway(observed, spec, pods, done)


def _trainers(observed: Observed, spec: FederatedLearningJobSpec | None) -> progress.Entries:
    """What those told who take part; an edit may have left others in the status."""
    known = status.workers(status.of(observed))
    if spec is None or ended(observed):
        return known
    names = workers.names(spec, observed.ref.name)
    return {name: entry for name, entry in known.items() if name in names}


def _underway(
    observed: Observed,
    spec: FederatedLearningJobSpec | None,
    pods: Sequence[Object],
    done: Sequence[str],
) -> Outcome:
    refusal = observed.refusal
    if refusal is not None:
        finding = Finding(TRAINING, Truth.FALSE, refusal.reason, refusal.message)
        return Outcome(finding, Phase.PENDING)
    running = [pod for pod in pods if phase_of(pod) == "Running" and not is_being_deleted(pod)]
    if not pods and not done:
        message = "no worker was created yet: see the other conditions"
        return Outcome(Finding(TRAINING, Truth.FALSE, status.WAITING, message), Phase.PENDING)
    expected = {*(pod["metadata"]["name"] for pod in pods), *done}
    expected |= {*workers.names(spec, observed.ref.name)} if spec is not None else set()
    up = {*(pod["metadata"]["name"] for pod in running), *done}
    if not expected <= up:
        missing = ", ".join(sorted(expected - up)[:MAX_NAMED])
        message = f"{len(running)} workers run, {len(done)} are done; not yet: {missing}"
        return Outcome(Finding(TRAINING, Truth.FALSE, status.STARTING, message), Phase.PENDING)
    number = progress.of(_trainers(observed, spec))["round"]
    message = f"round {number}" if number else "the workers run, no trainer has told a round yet"
    return Outcome(Finding(TRAINING, Truth.TRUE, "WorkersRunning", message), Phase.TRAINING)


def _has_failed_for_good(pod: Object) -> bool:
    state = status.mapping(pod.get("status"))
    return phase_of(pod) == "Failed" and state.get("reason") == _DEADLINE


def _end(type_: str, phase: Phase, reason: str, message: str) -> Outcome:
    training = Finding(TRAINING, Truth.FALSE, str(phase), "the job has ended")
    return Outcome(training, phase, Finding(type_, Truth.TRUE, reason, message))


def _conclude(
    observed: Observed,
    now: datetime,
    spec: FederatedLearningJobSpec | None,
    *,
    findings: tuple[Finding, Finding],
    outcome: Outcome,
    actions: Sequence[Action] = (),
) -> Plan:
    """The plan with the status that follows; `findings`: Accepted and ResolvedRefs."""
    nodes = assignments(observed).keys()
    connected, contact_in_s = contacts.edge_connected(observed, nodes, now)
    found = [*findings, outcome.training, *([connected] if connected else [])]
    found += [outcome.end] if outcome.end else []
    is_accepted = findings[0].truth is Truth.TRUE
    phase = outcome.phase if is_accepted or outcome.end else Phase.INVALID
    wanted = {
        "observedGeneration": observed.generation,
        "phase": str(phase),
        "conditions": status.conditions(observed, found, now),
        "startTime": _time(observed, "startTime", now, is_due=is_accepted),
        "resultTime": _time(observed, "resultTime", now, is_due=_has_result(observed)),
        "completionTime": _time(observed, "completionTime", now, is_due=outcome.end is not None),
        "edgeNodes": ",".join(sorted(nodes)) or None,
        **_numbers(observed, spec),
        **progress.of(_trainers(observed, spec)),
        **_left_out(observed, spec),
    }
    waits = [each for each in (contact_in_s, _requeue_after_s(observed, now)) if each is not None]
    return Plan(
        actions=tuple(actions),
        status=status.subtree(observed, wanted),
        events=status.events(observed, found),
        requeue_after_s=min(waits, default=None),
    )


def _left_out(observed: Observed, spec: FederatedLearningJobSpec | None) -> dict[str, Any]:
    """Removes what trainers told that an edit has left out."""
    counted = _trainers(observed, spec)
    gone = [name for name in status.workers(status.of(observed)) if name not in counted]
    return {"workers": dict.fromkeys(gone)} if gone else {}


def _cleared(observed: Observed, now: datetime) -> Plan:
    """Of a job that has ended: nothing is run again; pods that still run are ended.

    The last reports may come after the end, since edges may have been out of contact.
    """
    spec = accepted(types.read, observed.object)
    wanted = {
        "observedGeneration": observed.generation,
        **_numbers(observed),
        **progress.of(_trainers(observed, spec)),
    }
    actions = (*_stop(observed), *_told_to_model(observed, spec, now))
    return Plan(actions=actions, status=status.subtree(observed, wanted))


def _numbers(observed: Observed, spec: FederatedLearningJobSpec | None = None) -> dict[str, Any]:
    pods = _own_pods(observed)
    done = finished(observed, spec)
    return {
        "active": sum(faults.is_active(pod) for pod in pods),
        "succeeded": len(done),
        "failed": sum(phase_of(pod) == "Failed" for pod in pods),
        "finished": done,
    }


def _time(observed: Observed, field: str, now: datetime, *, is_due: bool) -> Any:
    known = status.of(observed).get(field)
    if status.parse_time(known):
        return known
    return status.timestamp(now) if is_due else None
