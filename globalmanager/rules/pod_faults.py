"""The faults of pods, in causal order: what is wrong, why, and what to do.

A fault has the words of the pod's own status. Total: a pod status with missing or odd fields gives
a shorter message, never an exception.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from globalmanager.contract import Object
from globalmanager.rules import deletions, status
from globalmanager.rules.container_faults import COMING_UP, PENDING_S, of_container, time_left_s
from globalmanager.rules.faults import Fault, pod_fault
from globalmanager.rules.objects import LABEL_ROLE, is_being_deleted, label_of
from globalmanager.rules.pod_state import container_states, node_of, phase_of
from globalmanager.rules.status import mapping, mappings

AWAITING_MASTER: Final = "AwaitingMaster"
MASTER_UNREACHABLE: Final = "MasterUnreachable"
MASTER_WAIT: Final = "init-pytorch"
"""Name of the init container with which a worker waits for its master, as in the Kubeflow
operator."""
_ROLES_AHEAD: Final = frozenset({"master", "chief", "launcher", "aggregator", "cloud"})
"""Roles of workers that others of the job wait for."""


class Examination(NamedTuple):
    faults: tuple[Fault, ...]
    """Those that count now: the cause before its consequences, and of workers with the same cause
    first the one that the others wait for."""
    next_s: float
    """Seconds until a fault begins or ends although no pod changes; infinite when none does."""


NO_FAULTS: Final = Examination((), math.inf)


def examine(pods: Iterable[Object], now: datetime | None = None) -> Examination:
    """The faults of pods.

    Args: now: UTC. None: only what the pods themselves call a fault, however long they wait
    """
    ranked = [
        (fault.cause, _rank(pod), fault.worker, number, fault)
        for pod in pods
        for number, fault in enumerate(_faults(pod, now))
    ]
    found = [fault for *_, fault in sorted(ranked, key=lambda entry: entry[:4])]
    waits = [each for fault in found for each in (fault.begins_in_s, fault.ends_in_s) if each > 0]
    return Examination(
        tuple(fault for fault in found if fault.begins_in_s <= 0), min(waits, default=math.inf)
    )


def first_fault(pods: Iterable[Object], now: datetime | None = None) -> Fault | None:
    """The first fault of `examine`."""
    return next(iter(examine(pods, now).faults), None)


def _rank(pod: Object) -> int:
    return 0 if label_of(pod, LABEL_ROLE) in _ROLES_AHEAD else 1


def _faults(pod: Object, now: datetime | None) -> Iterator[Fault]:
    if is_being_deleted(pod):
        overdue_in_s = math.inf if now is None else deletions.overdue_in_s(pod, now)
        yield msgspec.structs.replace(of_end(pod), begins_in_s=overdue_in_s)
        return
    state = mapping(pod.get("status"))
    phase = phase_of(pod)
    if phase == "Succeeded":
        return
    if phase == "Failed" and state.get("reason"):
        yield pod_fault(pod, state["reason"], state.get("message", ""))
        return
    found = [fault for entry in container_states(state) for fault in of_container(pod, entry, now)]
    yield from found
    if phase == "Failed" and not found:
        yield pod_fault(pod, "PodFailed", state.get("message", ""))
    elif phase == "Unknown" or _is_cut_off(pod):
        yield pod_fault(pod, "NodeNotReady", "the node does not report any more")
    elif phase == "Pending" and not found:
        yield from _of_start(pod, state, now)


def of_end(pod: Object) -> Fault:
    """Why a pod that should be gone is still there."""
    return pod_fault(pod, deletions.TERMINATING, deletions.why(pod))


def of_master(pod: Object, master: str) -> Fault:
    """The fault of a worker whose master runs and does not answer it. Args: master: its pod"""
    detail = f"its master {master} runs, and has not answered it for a minute"
    return pod_fault(pod, MASTER_UNREACHABLE, detail, MASTER_WAIT)


def _of_start(pod: Object, state: Mapping[str, Any], now: datetime | None) -> Iterator[Fault]:
    """Why a pod without a faulty container does not start."""
    scheduled = status.condition_of(pod, "PodScheduled")
    created_at = pod["metadata"].get("creationTimestamp")
    if scheduled.get("status") == "False":
        reason = scheduled.get("reason") or "Unschedulable"
        is_gated = reason == "SchedulingGated"  # some schedulers gate each pod for a moment
        left_s = time_left_s(created_at, PENDING_S, now) if is_gated else 0.0
        yield pod_fault(pod, reason, scheduled.get("message", ""), begins_in_s=left_s)
    elif not node_of(pod):
        left_s = time_left_s(created_at, PENDING_S, now)
        detail = "it does not start: no scheduler has looked at it"
        yield pod_fault(pod, "NotScheduled", detail, begins_in_s=left_s)
    else:
        since = scheduled.get("lastTransitionTime") or created_at
        reason, detail, container = _of_node(pod, state)
        left_s = time_left_s(since, PENDING_S, now)
        yield pod_fault(pod, reason, detail, container=container, begins_in_s=left_s)


def _of_node(pod: Object, state: Mapping[str, Any]) -> tuple[str, str, str]:
    """(reason, detail, container) of a pod that its node has not started."""
    started = [
        str(entry.get("name", ""))
        for entry in mappings(state.get("initContainerStatuses"))
        if mapping(entry.get("state")).get("running") is not None
    ]
    if started:
        name = started[-1]  # the others are sidecars, which run beside the containers that follow
        if name == MASTER_WAIT:
            return AWAITING_MASTER, "it waits until its master answers", name
        return "Initializing", f"it waits for its init container {name}", name
    waiting = [
        mapping(mapping(entry.get("state")).get("waiting")) for entry in container_states(state)
    ]
    if any(entry.get("reason") in COMING_UP for entry in waiting):
        return "ContainerCreating", f"its node does not start it: {_missing(pod)}", ""
    return "Pending", "it does not start: its node says nothing about it", ""


def _missing(pod: Object) -> str:
    """What a node may lack that has not made the containers. It does not say itself what it lacks.
    Those of the job's volumes come before ours, which we make.
    """
    volumes = mappings(mapping(pod.get("spec")).get("volumes"))
    volumes.sort(key=lambda volume: str(volume.get("name", "")).startswith(_OWN_VOLUME))
    needs = [
        f"the {type_} {source[key]} of volume {volume.get('name', '')}"
        for volume in volumes
        for type_, field, key in _NAMED
        if (source := mapping(volume.get(field))).get(key) and not source.get("optional")
    ]
    if not needs:
        return "the image or a volume is not there yet"
    named = [*needs[:_MAX_NEEDS], *(["another volume"] if len(needs) > _MAX_NEEDS else [])]
    return ", or ".join(["the image is not there yet", *named])


_NAMED: Final = (("ConfigMap", "configMap", "name"), ("Secret", "secret", "secretName"))
_OWN_VOLUME: Final = "edgeai-"
_MAX_NEEDS: Final = 2  # objects of volumes that one message names


def _is_cut_off(pod: Object) -> bool:
    """Whether the node controller has marked the pod, because its node is silent. A node itself
    never says that all containers are ready and the pod is not, unless the pod has readiness gates.
    """
    marks = [
        status.condition_of(pod, type_).get("status") for type_ in ("ContainersReady", "Ready")
    ]
    has_gates = bool(mapping(pod.get("spec")).get("readinessGates"))
    return phase_of(pod) == "Running" and marks == ["True", "False"] and not has_gates
