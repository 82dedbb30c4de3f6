"""What a job says in a few words: phase, progress, and what keeps the job from going on.

The command line, the client and the web console use the same words. Pure and total: the status may
be whatever another release, or somebody else, has written.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from globalmanager.contract import Object
from globalmanager.rules.faults import Fault, faults_in, in_order, job_fault
from globalmanager.rules.pod_faults import AWAITING_MASTER, MASTER_UNREACHABLE, examine
from globalmanager.rules.remedies import is_good
from globalmanager.rules.status import STARTING, WAITING, mapping

MAX_SHOWN: Final = 6  # largest number of values that the progress of a job shows
CURVES: Final = 6  # metrics of a job that have a curve, the first ones by name
MAX_METRICS: Final = 200  # metrics of a job that are looked at
REPLICA_STATES: Final = ("active", "succeeded", "failed")
OPERATOR: Final = "kubeflow.org/training-operator"
"""The value of managedBy with which a training job is ours. A job without managedBy is ours too."""
_GOOD_ENDS: Final = frozenset({"Succeeded", "Complete", "ScaleSucceeded"})
_MAX_NAME_CHARS: Final = 80


def conditions_of(status: Any) -> tuple[Mapping[str, Any], ...]:
    """The conditions, in the order of the status."""
    found = mapping(status).get("conditions")
    return tuple(map(mapping, found)) if isinstance(found, list) else ()


def phase_of(status: Any) -> str:
    """The phase of a job. The last condition of a training job says the same. A Model or a Dataset
    is Ready, or the reason of its first condition that is not True.
    """
    conditions = conditions_of(status)
    if told := mapping(status).get("phase"):
        return str(told)
    if not conditions:
        return "-"
    if _is_history(conditions):
        return str(conditions[-1].get("type") or "-")
    bad = next((each for each in conditions if not is_true(each)), None)
    return "Ready" if bad is None else str(bad.get("reason") or bad.get("type") or "-")


def _is_history(conditions: tuple[Mapping[str, Any], ...]) -> bool:
    """Only the conditions of training jobs are a history, which begins with Created."""
    return any(each.get("type") == "Created" for each in conditions)


def progress_of(status: Any) -> str:
    """The progress of a job: first the round, if the job has rounds, then the metrics. Of a
    training job, the numbers of replicas.
    """
    known = mapping(status)
    replicas = mapping(known.get("replicaStatuses") or known.get("tfReplicaStatuses"))
    if replicas:
        return ", ".join(_numbers(type_, mapping(entry)) for type_, entry in replicas.items())
    told = [f"{key} {value}" for key, value in metrics_of(status)]
    if known.get("rounds"):
        told.insert(0, f"round {known.get('round', 0)}/{known['rounds']}")
    elif known.get("round"):  # Sedna's library does not tell how many rounds there will be
        told.insert(0, f"round {known['round']}")
    return ", ".join(told[:MAX_SHOWN])


def metrics_of(status: Any) -> tuple[tuple[str, str], ...]:
    """The metrics as (key, value), in the order of the status."""
    found = mapping(status).get("metrics")
    entries = map(mapping, found) if isinstance(found, list) else ()
    return tuple((str(each.get("key", "")), str(each.get("value", ""))) for each in entries)


def numbers_of(status: Any) -> dict[str, float]:
    """The metrics that a curve can show."""
    numbers: dict[str, float] = {}
    for key, value in metrics_of(status)[:MAX_METRICS]:
        try:
            numbers[key] = float(value)
        except ValueError:
            continue
    return {key: value for key, value in numbers.items() if abs(value) < math.inf}


def _numbers(type_: str, entry: Mapping[str, Any]) -> str:
    """ "Worker 2 active, 1 failed" """
    told = [f"{entry[state]} {state}" for state in REPLICA_STATES if entry.get(state)]
    return f"{type_} {', '.join(told) or '0 active'}"


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
    types = {str(each.get("type")) for each in conditions if is_true(each)}
    if phase_of(status) in _GOOD_ENDS or types.intersection(_GOOD_ENDS):
        return ()
    is_over = bool(status.get("completionTime")) or "Suspended" in types
    is_at_work = not is_over and not ("Failed" in types and _is_history(conditions))
    examined = examine(pods, now).faults if is_at_work else ()
    told = [fault for each in conditions if not is_good(each) for fault in faults_in(each)]
    cut_off = {fault.worker for fault in told if fault.reason == MASTER_UNREACHABLE}
    heard = [
        each
        for each in examined
        if not _is_heard(status, each)
        and not (each.reason == AWAITING_MASTER and each.worker in cut_off)
    ]
    return in_order(_without_repetitions([*heard, *told]))


def _is_heard(status: Mapping[str, Any], fault: Fault) -> bool:
    """Whether the node is silent for Kubernetes only: its LocalController says that the worker
    runs.
    """
    if fault.reason != "NodeNotReady" or not fault.node:
        return False
    reports = map(mapping, mapping(status.get("workers")).values())
    states = [(one.get("node"), one.get("status")) for one in reports]
    lost = {str(one.get("type")) for one in conditions_of(status) if not is_true(one)}
    return (fault.node, "running") in states and "EdgeConnected" not in lost


def _without_repetitions(faults: Iterable[Fault]) -> list[Fault]:
    """The first fault of each worker with the same cause, and of the others each message once."""
    found: dict[tuple[Any, ...], Fault] = {}
    for fault in faults:
        key = (fault.worker, fault.cause) if fault.worker else ("", fault.message)
        found.setdefault(key, fault)
    return list(found.values())


def waits_of(
    job: Object, pods: Iterable[Object] = (), now: datetime | None = None
) -> tuple[Fault, ...]:
    """What a job waits for: its faults, else what the normal course of things is to bring, as a
    fault with or without a remedy. Empty when the job goes on by itself.

    Args: as for `faults_of`
    """
    return faults_of(job, pods, now) or tuple(normal_waits(job))


def normal_waits(job: Object) -> Iterator[Fault]:
    """What a job without a fault waits for, in the words of its status."""
    status = mapping(job.get("status"))
    manager = mapping(mapping(job.get("spec")).get("runPolicy")).get("managedBy")
    if phase_of(status) in _GOOD_ENDS:
        return
    if not status and manager not in (None, "", OPERATOR):
        text = f"spec.runPolicy.managedBy: {str(manager)[:_MAX_NAME_CHARS]} works on this job"
        yield job_fault("ManagedByOthers", f"{text}, and edgeai does not")
    for each in conditions_of(status):
        reason = _text(each, "reason")
        is_suspended = each.get("type") == "Suspended" and is_true(each)
        if is_suspended or reason in (STARTING, WAITING):
            yield job_fault(reason, _text(each, "message"))
    elastic = mapping(status.get("elastic"))
    if message := elastic.get("message"):
        yield job_fault(str(elastic.get("reason") or ""), str(message))
    if message := status.get("message"):  # of a scaler that no job executes
        yield job_fault("", str(message))


def in_one_line(faults: Sequence[Fault]) -> str:
    """The first of the faults, and how many more there are; "" without faults."""
    if not faults:
        return ""
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{faults[0].text}{more}"


def _text(condition: Mapping[str, Any], field: str) -> str:
    return str(condition.get(field) or "")


def is_true(condition: Mapping[str, Any]) -> bool:
    return condition.get("status") == "True"
