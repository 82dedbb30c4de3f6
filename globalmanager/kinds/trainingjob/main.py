"""plan of a TrainingJob: workers, then a launcher that trains on them, until the launcher ends.

Source of the order of the steps: AliyunContainerService/et-operator,
pkg/controllers/trainingjob_controller.go.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from common.times import rfc3339
from globalmanager.contract import (
    PODS,
    SECRETS,
    Create,
    InvalidSpec,
    Object,
    ObjectRef,
    Observed,
    Plan,
)
from globalmanager.kinds.trainingjob import launcher as launchers
from globalmanager.kinds.trainingjob import scaling, workers
from globalmanager.kinds.trainingjob.scaling import Scaling
from globalmanager.kinds.trainingjob.states import ENDS, Launcher, Situation, State, path
from globalmanager.kinds.trainingjob.types import TrainingJob
from globalmanager.rules import children, faults, lifecycle, status
from globalmanager.rules.children import Stages
from globalmanager.rules.elastic.words import LAUNCHER, WORKER
from globalmanager.rules.faults import phase_of
from globalmanager.rules.lifecycle import CleanPods, Timers
from globalmanager.rules.objects import is_being_deleted
from globalmanager.rules.status import mapping
from globalmanager.rules.training.changes import of_a_suspended_job
from globalmanager.rules.training.conditions import Conditions
from globalmanager.rules.training.replicas import MAX_RESTARTS, attempt_of

KIND: Final = "TrainingJob"
_STATES: Final = tuple(state for state in State if state is not State.NEW)


class Present(NamedTuple):
    """One job at one moment."""

    observed: Observed
    spec: TrainingJob
    now: datetime
    state: State
    conditions: Conditions
    restarts: int
    """How often the launcher was started again."""

    @property
    def text(self) -> str:
        return f"{KIND} {self.observed.ref.name}"


def plan(observed: Observed, now: datetime) -> Plan:
    """The next steps of the job."""
    if is_being_deleted(observed.object):
        return Plan()
    state = _known_state(observed)
    if state in ENDS:
        return _after_the_end(observed)
    conditions = Conditions(observed, KIND, now, states=_STATES)
    if observed.invalid is not None:
        return _invalid(observed, observed.invalid, conditions, now)
    job = Present(observed, observed.spec, now, state, conditions, _known_restarts(observed))
    return _living(job)


def _known_state(observed: Observed) -> State:
    text = status.of(observed).get("phase")
    return State(text) if text in _STATES else State.NEW


def _known_restarts(observed: Observed) -> int:
    number = status.of(observed).get("restartCount")
    return number if type(number) is int and 0 < number <= MAX_RESTARTS else 0


def _invalid(observed: Observed, error: InvalidSpec, conditions: Conditions, now: datetime) -> Plan:
    message = f"{KIND} {observed.ref.name} has failed because the spec is invalid: {error}"
    conditions.set(State.FAILED, message, cause="FailedValidation")
    fields = {"phase": str(State.FAILED), "completionTime": rfc3339(now)}
    return _written(observed, conditions, fields, now)


# ---- a job that lives ---------------------------------------------------------------------------


def _living(job: Present) -> Plan:
    observed = job.observed
    scaled = scaling.of(observed, job.spec)
    situation = _situation(job, scaled)
    state, restarts = job.state, job.restarts
    for state in path(job.state, situation):
        restarts += state is State.RESTARTING
        job.conditions.set(state, _MESSAGES[state].format(job=job.text))
    hosts = _hosts(job, scaled, state)
    fields = {
        "phase": str(state),
        "startTime": lifecycle.first_time(observed, "startTime", job.now, is_due=True),
        "completionTime": rfc3339(job.now) if state in ENDS else None,
        "restartCount": restarts,
        **scaled.size.fields,
        "currentWorkers": hosts,
        "replicaStatuses": _numbers(observed),
    }
    is_decided = _is_decided(job, scaled, restarts)
    stages = _stages(job, scaled, state, hosts) if is_decided and state not in ENDS else ()
    return _written(observed, job.conditions, fields, job.now, stages=stages)


def _is_decided(job: Present, scaled: Scaling, restarts: int) -> bool:
    """Whether the status already has the decisions that the actions follow from."""
    told = status.of(job.observed)
    is_known = told.get("targetWorkers") == list(scaled.size.target)
    return is_known and restarts == job.restarts


def _situation(job: Present, scaled: Scaling) -> Situation:
    pods = workers.present(job.observed)
    target = scaled.size.target
    return Situation(
        are_workers_created=all(name in pods for name in target),
        are_enough_ready=len(_ready(job.observed, scaled)) >= min(job.spec.least, len(target)),
        launcher=_launcher(job),
        may_restart=job.restarts < job.spec.restarts,
        is_scaling=scaled.is_active,
        is_suspended=job.spec.is_suspended,
    )


def _ready(observed: Observed, scaled: Scaling) -> list[str]:
    """The wanted workers that a launcher can use."""
    pods = workers.present(observed)
    return [name for name in scaled.size.target if name in pods and is_ready(pods[name])]


def is_ready(pod: Object) -> bool:
    """Whether the pod runs, is not being deleted, and its node has contact."""
    entries = mapping(pod.get("status")).get("conditions")
    listed = [mapping(entry) for entry in entries] if isinstance(entries, list) else []
    is_unready = any(one.get("type") == "Ready" and one.get("status") != "True" for one in listed)
    return phase_of(pod) == "Running" and faults.is_active(pod) and not is_unready


def _launcher(job: Present) -> Launcher:
    ref = ObjectRef(
        PODS, job.observed.ref.namespace, launchers.launcher_name(job.observed.ref.name)
    )
    pod = job.observed.children.get(ref)
    if pod is None:
        had_one = job.state in (State.LAUNCHER_CREATED, State.RUNNING, State.SCALING)
        return Launcher.LOST if had_one else Launcher.ABSENT
    if attempt_of(pod) < job.restarts:
        return Launcher.ABSENT
    if is_being_deleted(pod):  # its processes end because of the deletion, with any exit code
        return Launcher.PENDING
    phases = {
        "Running": Launcher.RUNNING,
        "Succeeded": Launcher.SUCCEEDED,
        "Failed": Launcher.FAILED,
    }
    return phases.get(phase_of(pod), Launcher.PENDING)


def _hosts(job: Present, scaled: Scaling, state: State) -> list[str]:
    """The list of hosts that the launcher sees."""
    if state is State.SUSPENDED:
        return []
    return _ready(job.observed, scaled)


def _stages(job: Present, scaled: Scaling, state: State, hosts: list[str]) -> Stages:
    observed, spec = job.observed, job.spec
    if state is State.SUSPENDED:
        deletions = of_a_suspended_job(observed)
        return (deletions,) if deletions else ()
    name = launchers.launcher_name(observed.ref.name)
    known = observed.children.get(ObjectRef(PODS, observed.ref.namespace, name))
    worn = (
        (lifecycle.deletion(known),)
        if known is not None and attempt_of(known) < job.restarts and not is_being_deleted(known)
        else ()
    )
    desired = [
        *([workers.ssh_secret(observed)] if _lacks_secret(job) else []),
        *workers.services(observed, scaled.size.target),
        *_missing_workers(job, scaled),
    ]
    if state not in (State.NEW, State.CREATED, State.WORKERS_CREATED):
        desired += [
            launchers.config(observed, spec, hosts),
            *launchers.account(observed, spec, workers.present(observed)),
        ]
        if known is None:
            desired.append(launchers.pod(observed, spec, job.restarts))
    settled = {
        ObjectRef(PODS, observed.ref.namespace, each) for each in (*scaled.size.target, name)
    } - {
        ObjectRef(PODS, observed.ref.namespace, each.object["metadata"]["name"])
        for each in desired
        if each.type == PODS
    }
    if workers.has_own_secret(spec) and not _lacks_secret(job):
        settled.add(ObjectRef(SECRETS, observed.ref.namespace, observed.ref.name))
    stages = children.reconcile(observed, desired, launchers.OWNS, settled=settled)
    return tuple(stage for stage in (worn, *stages) if stage)


def _lacks_secret(job: Present) -> bool:
    ref = ObjectRef(SECRETS, job.observed.ref.namespace, job.observed.ref.name)
    return workers.has_own_secret(job.spec) and ref not in job.observed.children


def _missing_workers(job: Present, scaled: Scaling) -> Iterator[Create]:
    pods = workers.present(job.observed)
    for name in scaled.size.target:
        if name not in pods:
            yield workers.pod(job.observed, job.spec, name)


def _numbers(observed: Observed) -> dict[str, Any]:
    pods = workers.present(observed)
    name = launchers.launcher_name(observed.ref.name)
    launcher = [
        pod
        for ref, pod in observed.children.items()
        if ref == ObjectRef(PODS, observed.ref.namespace, name)
    ]
    found = {}
    for type_, role, listed in (
        ("Launcher", LAUNCHER, launcher),
        ("Worker", WORKER, list(pods.values())),
    ):
        numbers = {
            "active": sum(phase_of(pod) == "Running" and faults.is_active(pod) for pod in listed),
            "succeeded": sum(phase_of(pod) == "Succeeded" for pod in listed),
            "failed": sum(phase_of(pod) == "Failed" for pod in listed),
        }
        labels = workers.labels(observed.ref.name, role)
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        found[type_] = {key: n for key, n in numbers.items() if n} | {"selector": selector}
    return found


_MESSAGES: Final[Mapping[State, str]] = {
    State.CREATED: "{job} is created.",
    State.WORKERS_CREATED: "all workers of {job} are created.",
    State.WORKERS_READY: "enough workers of {job} are ready.",
    State.LAUNCHER_CREATED: "the launcher of {job} is created.",
    State.RUNNING: "{job} is running.",
    State.SCALING: "{job} is scaling.",
    State.RESTARTING: "{job} is restarting because its launcher has failed.",
    State.SUSPENDED: "{job} is suspended.",
    State.SUCCEEDED: "{job} is successfully completed.",
    State.FAILED: "{job} has failed.",
}


# ---- a job that has ended -----------------------------------------------------------------------


def _after_the_end(observed: Observed) -> Plan:
    spec: TrainingJob | None = observed.spec
    policy = spec.clean_pods if spec is not None else CleanPods.NONE
    deletions = lifecycle.clean_up(list(workers.present(observed).values()), policy)
    return Plan(stages=(deletions,) if deletions else ())


def _written(
    observed: Observed,
    conditions: Conditions,
    fields: Mapping[str, Any],
    now: datetime,
    *,
    stages: Stages = (),
    timers: Timers = Timers(),  # noqa: B008 - frozen
) -> Plan:
    wanted = {
        "observedGeneration": observed.generation,
        "conditions": conditions.listed,
        **fields,
    }
    changed = status.replacing_subtree(observed, wanted)
    if changed is not None:
        changed = {**changed, "lastReconcileTime": rfc3339(now)}
    return Plan(
        stages=stages,
        status=changed,
        events=tuple(conditions.events),
        requeue_after_s=timers.next_s,
    )
