"""Plans what a FederatedLearningJob needs next.

The engine plans again when the job has changed, or its workers' pods, or the Models, Datasets and
Nodes that the job refers to, or the contact to its edges. Pure and total.

A worker is done when its pod has succeeded. .status.finished keeps the pod's name, so Kubernetes
may delete the pod. A failed pod means that Kubernetes has taken the pod from its node, because the
node restarts failed containers by itself. The plan replaces a failed pod after a pause. Only a pod
with an exceeded deadline fails the job.

Once the aggregator has succeeded, a new trainer has nothing to do, so the plan creates no trainer
any more. The running trainers get some time to end. Then the plan deletes their pods, because a
trainer that missed the result would wait for ever. The job is complete when the last trainer has
ended, in whatever way.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from edgeai.api import pod_state
from edgeai.api.federatedlearningjob import FederatedLearningJobSpec, Phase
from edgeai.api.objects import is_being_deleted
from edgeai.api.pod_state import phase_of
from edgeai.api.resources import PODS, Object, ObjectRef, ref_of
from edgeai.api.status import STARTING, WAITING, Finding, Truth, left_s, mapping, worker_entries
from edgeai.faults import pod_faults
from edgeai.times import rfc3339
from globalmanager.contract import Action, Observed, Plan
from globalmanager.kinds.edge import references, suspension
from globalmanager.kinds.edge.federatedlearningjob import progress, worker_secrets, workers
from globalmanager.kinds.edge.federatedlearningjob import spec as types
from globalmanager.kinds.edge.federatedlearningjob.assignments import nodes
from globalmanager.kinds.edge.federatedlearningjob.spec import COMPLETE, FAILED, TRAINING
from globalmanager.kinds.shared import children, lifecycle, sedna, status
from globalmanager.kinds.shared.children import Stages
from globalmanager.kinds.shared.lifecycle import Timers, own_pods
from globalmanager.kinds.shared.silent_nodes import has_quota, silent_since
from globalmanager.kinds.shared.status import SUSPENDED

REPLACED_AFTER_S: Final = 30.0
"""Seconds. The plan does not replace a younger failed pod yet. A node that refuses a pod refuses
the pod at once, and would refuse a replacement at once too."""
LEFT_WAITING_S: Final = 300.0
"""Seconds that trainers have to save their models after the aggregator has succeeded. A trainer
that missed the result would wait for ever, and looks the same as a slow trainer."""
MAX_NAMED: Final = 5  # workers that a message names
_DEADLINE: Final = "DeadlineExceeded"
_END: Final = (COMPLETE, FAILED)


class Outcome(NamedTuple):
    """Condition Training and the phase. `end` is the final condition when the job is over."""

    training: Finding
    phase: Phase
    end: Finding | None = None


def plan(observed: Observed, now: datetime) -> Plan:
    if is_being_deleted(observed.object):
        return Plan()  # the garbage collector deletes the children by their owner references
    # The end is final: a later edit, or the deletion of a Model, starts no worker again.
    if ended(observed):
        return _cleared(observed, now)
    spec: FederatedLearningJobSpec | None = observed.spec
    # They matter for a job that runs, too: a lost pod cannot be made again without its inputs.
    obstacles = types.obstacles(observed, spec) if spec else ()
    if observed.invalid is not None:
        findings = (status.rejected(observed.invalid), references.UNRESOLVED)
    else:
        findings = (status.accepted(_note(observed, spec)), references.resolved(obstacles))
    if suspension.is_suspended(observed):
        return _suspended(observed, findings, now)
    outcome = _outcome(observed, spec, now)
    # At the end, and when the trainers have had their time, the pods that still run go. A trainer
    # that has missed the result would hold its node's resources for ever.
    stages: Stages = ()
    has_waited = _has_result(observed) and _wait_for_trainers_s(observed, now) <= 0
    if outcome.end is not None or has_waited:
        stages = (lifecycle.clean_up(own_pods(observed)),)
    # With a wrong spec or a missing reference, the workers that run stay as they are. After the
    # result, a new trainer would have no aggregator to join.
    elif spec is not None and not obstacles and not _has_result(observed):
        stages = _reconcile(observed, spec, now)
    model_status = _model_status(observed, spec, now)
    is_resuming = status.condition(observed, SUSPENDED).get("status") == Truth.TRUE
    start = rfc3339(now) if is_resuming else ""
    return lifecycle.conclude(
        observed,
        now,
        findings=[*findings, outcome.training, *suspension.findings(observed)],
        end=outcome.end,
        phase=sedna.phase(observed, outcome.phase if spec or outcome.end else Phase.INVALID),
        nodes=nodes(observed),
        fields=_fields(observed, spec, outcome, now) | ({"startTime": start} if start else {}),
        examination=_examine(observed, now),
        stages=tuple(stage for stage in (*stages, model_status) if stage),
        timers=_timers(observed, now),
    )


def ended(observed: Observed) -> bool:
    return lifecycle.has_ended(observed, _END)


def _note(observed: Observed, spec: FederatedLearningJobSpec | None) -> str:
    if spec is None:
        return ""
    # Each is about a valid job with a surprising result, so the job runs and Accepted stays True.
    hints = (
        _overwrites(observed, spec),
        types.shared_dataset(spec),
        progress.count_hint(observed, spec),
    )
    return "; but ".join(["the spec can be carried out", *filter(None, hints)])


def _overwrites(observed: Observed, spec: FederatedLearningJobSpec) -> str:
    """A hint when a newer job makes the same Model."""
    model = types.result(observed, spec)
    other = progress.newer_job(observed, model)
    if not other:
        return ""
    text = f"{model} has the rounds of job {other}, made later"
    return f"{text}: give each job a Model of its own, or the last to end overwrites the other"


def _model_status(
    observed: Observed, spec: FederatedLearningJobSpec | None, now: datetime
) -> tuple[Action, ...]:
    if spec is None:
        return ()
    trainers = _trainers(observed, spec)
    counts = progress.sample_counts(observed, is_over=ended(observed))
    return progress.model_status(observed, trainers, counts, types.result(observed, spec), now)


# ---- suspend and resume -------------------------------------------------------------------------


def _suspended(observed: Observed, findings: Sequence[Finding], now: datetime) -> Plan:
    """No worker runs until the job is resumed. Workers that are done stay done."""
    spec, recorded = observed.spec, status.status_of(observed)
    outcome = Outcome(
        Finding(TRAINING, Truth.FALSE, SUSPENDED, "the job is suspended"), Phase.SUSPENDED
    )
    fields = _fields(observed, spec, outcome, now)
    # The pods go after the status names the workers that are done: a GlobalManager that is killed
    # between the two steps knows them from the status alone.
    is_recorded = recorded.get("finished") == fields["finished"]
    deletions = lifecycle.deletions(observed) if is_recorded else ()
    stages = (deletions, _model_status(observed, spec, now))
    return lifecycle.conclude(
        observed,
        now,
        findings=[*findings, outcome.training, *suspension.findings(observed)],
        phase=sedna.phase(observed, outcome.phase),
        nodes=nodes(observed),
        fields={**fields, "startTime": recorded.get("startTime")},
        # A suspended job wants no pod, so only a pod that does not go is a fault.
        examination=pod_faults.examine(filter(is_being_deleted, own_pods(observed)), now),
        stages=tuple(stage for stage in stages if stage),
    )


# ---- workers ------------------------------------------------------------------------------------


def finished(observed: Observed, spec: FederatedLearningJobSpec | None = None) -> list[str]:
    """Names of the pods of workers that are done. With `spec`, only workers that the spec has."""
    # A trainer that left the spec does not count as done: its later namesake would never run.
    among = None if spec is None else workers.names(spec, observed.ref.name)
    return lifecycle.finished(observed, among=among)


def _reconcile(observed: Observed, spec: FederatedLearningJobSpec, now: datetime) -> Stages:
    # A worker that has succeeded does not run again, also when somebody deletes its pod.
    finished_pods = [
        ObjectRef(PODS, observed.ref.namespace, name) for name in finished(observed, spec)
    ]
    # A failed pod keeps its name until it is old enough. Without this exemption, an edit of the
    # spec would replace it before the pause is over.
    failed_pods = [ref_of(PODS, pod) for pod in own_pods(observed) if phase_of(pod) == "Failed"]
    replacements, _ = lifecycle.replacement(own_pods(observed), now, after_s=REPLACED_AFTER_S)
    desired = workers.desired(observed, spec)
    return (
        replacements,
        *children.reconcile(observed, desired, workers.OWNS, exempt=[*finished_pods, *failed_pods]),
    )


def _has_result(observed: Observed) -> bool:
    """Whether the aggregator has succeeded."""
    return types.worker_name(observed.ref.name, None) in finished(observed)


def _wait_for_trainers_s(observed: Observed, now: datetime) -> float:
    """Seconds that the trainers still have since the GlobalManager saw the result."""
    # Not since the time that a node tells: its clock may be wrong.
    result_time = status.status_of(observed).get("resultTime")
    return left_s(result_time, LEFT_WAITING_S, now, unknown=LEFT_WAITING_S)


def _timers(observed: Observed, now: datetime) -> Timers:
    """The next moment at which the plan replaces a failed pod or ends a waiting trainer."""
    pods = own_pods(observed)
    _, timers = lifecycle.replacement(pods, now, after_s=REPLACED_AFTER_S)
    if _has_result(observed) and any(map(pod_state.is_active, pods)):
        return timers.add(_wait_for_trainers_s(observed, now))
    return timers


# ---- status -------------------------------------------------------------------------------------


def _outcome(observed: Observed, spec: FederatedLearningJobSpec | None, now: datetime) -> Outcome:
    pods = own_pods(observed)
    # A deadline is the user's own limit, so a new pod would only break it. Every other failure
    # comes from the node, and the plan replaces the pod.
    failed = next((pod for pod in pods if _has_failed_for_good(pod)), None)
    if failed is not None:
        message = str(mapping(failed.get("status")).get("message") or _DEADLINE)
        text = f"pod {failed['metadata']['name']}: {message}"
        return _end(FAILED, Phase.FAILED, _DEADLINE, text)
    finished_names = finished(observed, spec)
    expected = {*workers.names(spec, observed.ref.name)} if spec is not None else set()
    # The names in the status count too, because Kubernetes may have removed the pods.
    if expected and expected <= {*finished_names}:
        return _end(COMPLETE, Phase.SUCCEEDED, "Complete", "every worker has succeeded")
    # The aggregator has the model: a trainer that ended without it does not make the job fail.
    if _has_result(observed) and not any(map(pod_state.is_active, pods)):
        unfinished = ", ".join(sorted(expected - {*finished_names}))
        message = "the aggregator has succeeded"
        message += f"; ended before they had the result: {unfinished}" if unfinished else ""
        return _end(COMPLETE, Phase.SUCCEEDED, "Complete", message)
    # A fault comes before the count of workers: it says why a worker does not run.
    fault = next(iter(_examine(observed, now).faults), None)
    if fault is not None:
        return Outcome(Finding(TRAINING, Truth.FALSE, fault.reason, fault.message), Phase.PENDING)
    return _underway(observed, spec, pods, finished_names)


def _examine(observed: Observed, now: datetime) -> pod_faults.Examination:
    """The faults of the workers, without those on silent nodes: nobody knows what they do now."""
    pods = (pod for pod in own_pods(observed) if silent_since(pod) is None)
    return pod_faults.examine(pods, now)


def _trainers(observed: Observed, spec: FederatedLearningJobSpec | None) -> progress.Entries:
    """The status entries of the trainers that the spec has: those of removed ones do not count."""
    entries = worker_entries(status.status_of(observed))
    if spec is None or ended(observed):
        return entries
    names = workers.names(spec, observed.ref.name)
    return {name: entry for name, entry in entries.items() if name in names}


def _underway(
    observed: Observed,
    spec: FederatedLearningJobSpec | None,
    pods: list[Object],
    finished_names: list[str],
) -> Outcome:
    # While the API refuses a child, the job is incomplete, also when all its pods run.
    refusal = observed.refusal
    if refusal is not None:
        finding = Finding(TRAINING, Truth.FALSE, refusal.reason, refusal.message)
        return Outcome(finding, Phase.PENDING)
    running = [pod for pod in pods if phase_of(pod) == "Running" and not is_being_deleted(pod)]
    if not pods and not finished_names:
        message = "no worker was created yet: see the other conditions"
        return Outcome(Finding(TRAINING, Truth.FALSE, WAITING, message), Phase.PENDING)
    # While the spec is wrong, the workers are those whose pods exist.
    expected = {*(pod["metadata"]["name"] for pod in pods), *finished_names}
    expected |= {*workers.names(spec, observed.ref.name)} if spec is not None else set()
    up = {*(pod["metadata"]["name"] for pod in running), *finished_names}
    if not expected <= up:
        absent = ", ".join(sorted(expected - up)[:MAX_NAMED])
        message = f"{len(running)} workers run, {len(finished_names)} are done; not yet: {absent}"
        return Outcome(Finding(TRAINING, Truth.FALSE, STARTING, message), Phase.PENDING)
    number = progress.status_fields(_trainers(observed, spec), {})["round"]
    message = f"round {number}" if number else "the workers run, no trainer has told a round yet"
    return Outcome(Finding(TRAINING, Truth.TRUE, "WorkersRunning", message), Phase.TRAINING)


def _has_failed_for_good(pod: Object) -> bool:
    state = mapping(pod.get("status"))
    return phase_of(pod) == "Failed" and state.get("reason") == _DEADLINE


def _end(type_: str, phase: Phase, reason: str, message: str) -> Outcome:
    training = Finding(TRAINING, Truth.FALSE, str(phase), "the job has ended")
    return Outcome(training, phase, Finding(type_, Truth.TRUE, reason, message))


def _fields(
    observed: Observed, spec: FederatedLearningJobSpec | None, outcome: Outcome, now: datetime
) -> dict[str, Any]:
    """The fields of .status beside conditions and phase."""
    is_over = outcome.end is not None
    counts = progress.sample_counts(observed, is_over=False)
    samples = mapping(status.status_of(observed).get("samples"))
    return {
        "resultTime": lifecycle.first_time(
            observed, "resultTime", now, is_due=_has_result(observed)
        ),
        "completionTime": lifecycle.first_time(observed, "completionTime", now, is_due=is_over),
        **_numbers(observed, spec),
        "samples": status.replacement_patch(samples, counts) or None,
        **_progress(observed, spec, counts),
        **status.workers_left_out(observed, _trainers(observed, spec)),
    }


def _progress(
    observed: Observed, spec: FederatedLearningJobSpec | None, counts: Mapping[str, int]
) -> dict[str, Any]:
    fields = progress.status_fields(_trainers(observed, spec), counts)
    last = status.status_of(observed).get("history")
    return {
        **fields,
        "history": progress.history(last, fields["round"], fields["metrics"]) or None,
    }


def _cleared(observed: Observed, now: datetime) -> Plan:
    """The plan of a job that has ended. It deletes pods that still run and creates nothing."""
    # An edge that was out of contact may report after the end, so the numbers still change.
    counts = progress.sample_counts(observed, is_over=True)
    fields = {
        "observedGeneration": observed.generation,
        **_numbers(observed),
        **_progress(observed, observed.spec, counts),
    }
    stages = (
        (*lifecycle.clean_up(own_pods(observed)), *worker_secrets.clean_up(observed)),
        _model_status(observed, observed.spec, now),
    )
    return Plan(
        stages=tuple(stage for stage in stages if stage),
        status=status.subtree(observed, fields),
    )


def _numbers(observed: Observed, spec: FederatedLearningJobSpec | None = None) -> dict[str, Any]:
    pods = own_pods(observed)
    finished_names = finished(observed, spec)
    is_suspended = suspension.is_suspended(observed)
    return {
        "active": sum(has_quota(observed, pod, is_suspended=is_suspended) for pod in pods),
        "succeeded": len(finished_names),
        "failed": sum(phase_of(pod) == "Failed" for pod in pods),
        "finished": finished_names,
    }
