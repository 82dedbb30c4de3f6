"""What a job says in a few words: phase, progress, and what keeps the job from going on.

The command line, the client and the web console use the same words. Pure and total: the status may
be whatever another release, or somebody else, has written.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from edgeai.api.resources import Object
from edgeai.api.status import STARTING, WAITING, condition_of, mapping, mappings
from edgeai.faults.faults import Fault, faults_in, in_order, job_fault
from edgeai.faults.pod_faults import AWAITING_MASTER, MASTER_UNREACHABLE, examine
from edgeai.faults.remedies import is_good

MAX_SHOWN: Final = 6  # largest number of values that the progress of a job shows
CURVES: Final = 6  # metrics of a job that have a curve, the first ones by name
MAX_METRICS: Final = 200  # metrics of a job that are looked at
REPLICA_STATES: Final = ("active", "succeeded", "failed")
OPERATOR: Final = "kubeflow.org/training-operator"
"""The value of managedBy with which a training job is ours. A job without managedBy is ours too."""
# After such an end nobody needs to look at earlier faults.
_GOOD_ENDS: Final = frozenset({"Succeeded", "Complete", "ScaleSucceeded"})
_MAX_NAME_CHARS: Final = 80


def conditions_of(status: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple(mappings(mapping(status).get("conditions")))


def phase_of(status: Any) -> str:
    """The phase of a job. The last condition of a training job says the same. A Model or a Dataset
    is Ready, or the reason of its first condition that is not True.
    """
    conditions = conditions_of(status)
    if phase := mapping(status).get("phase"):
        return str(phase)
    if not conditions:
        return "-"
    if _is_history(conditions):
        return str(conditions[-1].get("type") or "-")
    for condition in conditions:
        if not is_true(condition):
            return str(condition.get("reason") or condition.get("type") or "-")
    return "Ready"


def _is_history(conditions: tuple[Mapping[str, Any], ...]) -> bool:
    """Only the conditions of training jobs are a history, which begins with Created."""
    return any(condition.get("type") == "Created" for condition in conditions)


def progress_of(status: Any) -> str:
    """The progress of a job: first the round, if the job has rounds, then the metrics. Of a
    training job, the numbers of replicas, and of workers that its launcher does not have yet.
    """
    fields = mapping(status)
    replicas = mapping(fields.get("replicaStatuses") or fields.get("tfReplicaStatuses"))
    if replicas:
        numbers = [_numbers(type_, mapping(entry)) for type_, entry in replicas.items()]
        return ", ".join([*numbers, *_not_in_training(fields)])
    values = [f"{key} {value}" for key, value in metrics_of(status)]
    if fields.get("rounds"):
        values.insert(0, f"round {fields.get('round', 0)}/{fields['rounds']}")
    elif fields.get("round"):  # Sedna's library does not report the number of rounds
        values.insert(0, f"round {fields['round']}")
    return ", ".join(values[:MAX_SHOWN])


def metrics_of(status: Any) -> tuple[tuple[str, str], ...]:
    """The metrics as (key, value), in the order of the status."""
    metrics = mappings(mapping(status).get("metrics"))
    return tuple((str(metric.get("key", "")), str(metric.get("value", ""))) for metric in metrics)


def numbers_of(status: Any) -> dict[str, float]:
    """The metrics that a curve can show."""
    numbers = {key: number_of(value) for key, value in metrics_of(status)[:MAX_METRICS]}
    return {key: number for key, number in numbers.items() if number is not None}


def number_of(value: Any) -> float | None:
    """The finite number in a value; None when there is none. No other has a place on a curve."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _not_in_training(fields: Mapping[str, Any]) -> list[str]:
    """Of an elastic job whose launcher runs. A worker's pod may run before the launcher has it."""
    target, current = fields.get("targetWorkers"), fields.get("currentWorkers")
    if not (isinstance(target, list) and isinstance(current, list) and current):
        return []
    number = sum(name not in current for name in target)
    return [f"{number} not in training yet"] if number else []


def _numbers(type_: str, entry: Mapping[str, Any]) -> str:
    """ "Worker 2 active, 1 failed" """
    numbers = [f"{entry[state]} {state}" for state in REPLICA_STATES if entry.get(state)]
    return f"{type_} {', '.join(numbers) or '0 active'}"


def faults_of(
    job: Object, pods: Iterable[Object] = (), now: datetime | None = None
) -> tuple[Fault, ...]:
    """What is wrong with a job of any kind, in causal order; empty when nothing is.

    Args:
        pods: of the job, where the caller has them. They say more than the conditions, and sooner
        now: UTC. None: only what the pods themselves call a fault, however long they wait
    """
    status = mapping(job.get("status"))
    conditions = conditions_of(status)
    types = {str(condition.get("type")) for condition in conditions if is_true(condition)}
    if phase_of(status) in _GOOD_ENDS or types.intersection(_GOOD_ENDS):
        return ()
    is_over = bool(status.get("completionTime")) or "Suspended" in types
    # Pods of a job that has ended or is suspended are left over, and explain nothing. A service has
    # the condition Failed, too, and goes on: only in a history it is the end.
    is_at_work = not is_over and not ("Failed" in types and _is_history(conditions))
    pod_faults = examine(pods, now).faults if is_at_work else ()
    bad_conditions = (condition for condition in conditions if not is_good(condition))
    condition_faults = [fault for condition in bad_conditions for fault in faults_in(condition)]
    # The pod of a worker says that it waits. The job's condition says that the master runs.
    unreachable = {fault.worker for fault in condition_faults if fault.reason == MASTER_UNREACHABLE}
    news = (
        fault
        for fault in pod_faults
        if not _runs_at_edge(status, fault)
        and not (fault.reason == AWAITING_MASTER and fault.worker in unreachable)
    )
    # The pods come first, because a condition may be one plan behind them.
    return in_order(_without_repetitions([*news, *condition_faults]))


def _runs_at_edge(status: Mapping[str, Any], fault: Fault) -> bool:
    """Whether the node is silent for Kubernetes only: its LocalController says the worker runs."""
    if fault.reason != "NodeNotReady" or not fault.node:
        return False
    reports = map(mapping, mapping(status.get("workers")).values())
    states = [(report.get("node"), report.get("status")) for report in reports]
    # Without contact, the last report may be hours old.
    contact = condition_of({"status": status}, "EdgeConnected")
    return (fault.node, "running") in states and (not contact or is_true(contact))


def _without_repetitions(faults: Iterable[Fault]) -> list[Fault]:
    """The first fault of each worker with the same cause, and of the others each message once."""
    by_key: dict[tuple[Any, ...], Fault] = {}
    for fault in faults:
        # By the cause, not the reason: pod and condition may have two words for one crash.
        key = (fault.worker, fault.cause) if fault.worker else ("", fault.message)
        by_key.setdefault(key, fault)
    return list(by_key.values())


def waits_of(
    job: Object, pods: Iterable[Object] = (), now: datetime | None = None
) -> tuple[Fault, ...]:
    """What a job waits for: its faults, else what the normal course of things is to bring, as a
    fault with or without a remedy. Empty when the job goes on by itself.

    Args: as of `faults_of`
    """
    return faults_of(job, pods, now) or tuple(normal_waits(job))


def normal_waits(job: Object) -> Iterator[Fault]:
    """What a job without a fault waits for, in the words of its status."""
    status = mapping(job.get("status"))
    manager = mapping(mapping(job.get("spec")).get("runPolicy")).get("managedBy")
    if phase_of(status) in _GOOD_ENDS:
        return
    if not status and manager not in (None, "", OPERATOR):
        # The value is a text of the user, of any length.
        text = f"spec.runPolicy.managedBy: {str(manager)[:_MAX_NAME_CHARS]} works on this job"
        yield job_fault("ManagedByOthers", f"{text}, and edgeai does not")
    for condition in conditions_of(status):
        reason = str(condition.get("reason") or "")
        is_suspended = condition.get("type") == "Suspended" and is_true(condition)
        if is_suspended or reason in (STARTING, WAITING):
            yield job_fault(reason, str(condition.get("message") or ""))
    elastic = mapping(status.get("elastic"))
    if message := elastic.get("message"):
        yield job_fault(str(elastic.get("reason") or ""), str(message))
    if message := status.get("message"):  # of a scaler that no job executes
        yield job_fault("", str(message))


def change_of(kind: str, scaler: Object) -> str:
    """How many workers come or go by a ScaleOut or a ScaleIn: "+2", "-1"; "" when it says none."""
    field, sign = _CHANGES.get(kind, ("", ""))
    change = mapping(mapping(scaler.get("spec")).get(field))
    names = change.get("podNames")
    count = len(names) if isinstance(names, list) and names else change.get("count")
    return f"{sign}{count}" if type(count) is int and count else ""


_CHANGES: Final = {"ScaleOut": ("toAdd", "+"), "ScaleIn": ("toDelete", "-")}


def in_one_line(faults: Sequence[Fault]) -> str:
    """The first of the faults, and how many more there are; "" without faults."""
    if not faults:
        return ""
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{faults[0].text}{more}"


def is_true(condition: Mapping[str, Any]) -> bool:
    return condition.get("status") == "True"
