"""The faults of pods, in causal order: what is wrong, why, and what to do.

A fault has the words of the pod's own status. Total: odd fields give a shorter message.
"""

import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from edgeai.api import deletions
from edgeai.api.objects import LABEL_ROLE, is_being_deleted, label_of
from edgeai.api.pod_state import container_states, node_of, phase_of, sidecar_names, telling_states
from edgeai.api.resources import Object
from edgeai.api.status import condition_of, left_s, mapping, mappings
from edgeai.faults.container_faults import COMING_UP, PENDING_S, container_fault
from edgeai.faults.faults import Fault, in_order, pod_fault

AWAITING_MASTER: Final = "AwaitingMaster"
MASTER_UNREACHABLE: Final = "MasterUnreachable"
MASTER_WAIT: Final = "init-pytorch"
"""Init container in which a worker waits for its master, as the Kubeflow operator calls it."""
_ROLES_AHEAD: Final = frozenset({"master", "chief", "launcher", "aggregator", "cloud"})
"""Roles of workers that others of the job wait for."""


class Examination(NamedTuple):
    faults: tuple[Fault, ...]
    """The present ones: causes before consequences, and first the worker that others wait for."""
    next_s: float
    """Seconds until a fault begins or ends although no pod changes; infinite when none does."""


NO_FAULTS: Final = Examination((), math.inf)


def examine(pods: Iterable[Object], now: datetime | None = None) -> Examination:
    """The faults of pods.

    Args: now: UTC. None: only what the pods themselves call a fault, however long they wait
    """
    # Sorted by pod, then by cause: the same pods in another order give the same message.
    faults = in_order(fault for pod in sorted(pods, key=_rank) for fault in _faults(pod, now))
    times_s = (time_s for fault in faults for time_s in (fault.begins_in_s, fault.ends_in_s))
    return Examination(
        tuple(fault for fault in faults if fault.begins_in_s <= 0),
        min((time_s for time_s in times_s if time_s > 0), default=math.inf),
    )


def first_fault(pods: Iterable[Object], now: datetime | None = None) -> Fault | None:
    return next(iter(examine(pods, now).faults), None)


def _rank(pod: Object) -> tuple[bool, str]:
    return label_of(pod, LABEL_ROLE) not in _ROLES_AHEAD, str(pod["metadata"].get("name"))


def _faults(pod: Object, now: datetime | None) -> Iterator[Fault]:
    # A pod that is being deleted can only stay too long. Its containers say nothing new.
    if is_being_deleted(pod):
        overdue_in_s = math.inf if now is None else deletions.overdue_in_s(pod, now)
        yield msgspec.structs.replace(deletion_fault(pod), begins_in_s=overdue_in_s)
        return
    state = mapping(pod.get("status"))
    phase, reason, message = phase_of(pod), state.get("reason"), state.get("message", "")
    if phase == "Succeeded":
        return
    # The node or the cluster has ended the pod, as by an eviction, and so its containers.
    if phase == "Failed" and reason:
        yield pod_fault(pod, reason, message)
        return
    faults = [container_fault(pod, container, now) for container in telling_states(pod)]
    yield from filter(None, faults)
    is_explained = any(faults)
    # The fault of a container is nearer to the cause than the phase of its pod.
    if phase == "Failed" and not is_explained:
        yield pod_fault(pod, "PodFailed", message)
    elif phase == "Unknown" or _is_cut_off(pod):
        yield pod_fault(pod, "NodeNotReady", "the node does not report any more")
    elif phase == "Pending" and not is_explained:
        yield _start_fault(pod, now)


def deletion_fault(pod: Object) -> Fault:
    """Why a pod that should be gone is still there."""
    return pod_fault(pod, deletions.TERMINATING, deletions.why(pod))


def master_fault(pod: Object, master: str) -> Fault:
    """The fault of a worker whose master runs and does not answer it. Args: master: its pod"""
    detail = f"its master {master} runs, and has not answered it for a minute"
    return pod_fault(pod, MASTER_UNREACHABLE, detail, MASTER_WAIT)


def _start_fault(pod: Object, now: datetime | None) -> Fault:
    """Why a pod without a faulty container does not start."""
    scheduling = condition_of(pod, "PodScheduled")
    since, container = pod["metadata"].get("creationTimestamp"), ""
    if scheduling.get("status") == "False":
        reason, detail = scheduling.get("reason"), scheduling.get("message", "")
        if reason != "SchedulingGated":  # some schedulers gate each pod for a moment
            return pod_fault(pod, reason or "Unschedulable", detail)
    elif not node_of(pod):
        reason, detail = "NotScheduled", "it does not start: no scheduler has looked at it"
    else:
        # The time in the queue of the scheduler is no delay of the node.
        since = scheduling.get("lastTransitionTime") or since
        reason, detail, container = _node_wait(pod)
    begins_in_s = left_s(since, PENDING_S, now)
    return pod_fault(pod, reason, detail, container, begins_in_s=begins_in_s)


def _node_wait(pod: Object) -> tuple[str, str, str]:
    """(reason, detail, container) of a pod that its node has not started."""
    sidecars = sidecar_names(pod)
    running = [
        str(container.get("name", ""))
        for container in mappings(mapping(pod.get("status")).get("initContainerStatuses"))
        if mapping(container.get("state")).get("running") is not None
        # The pod waits for a sidecar only until that has started.
        and not (container.get("name") in sidecars and container.get("started") is True)
    ]
    if running:
        name = running[-1]
        if name == MASTER_WAIT:
            return AWAITING_MASTER, "it waits until its master answers", name
        return "Initializing", f"it waits for its init container {name}", name
    states = (mapping(container.get("state")) for container in container_states(pod))
    if any(mapping(state.get("waiting")).get("reason") in COMING_UP for state in states):
        return "ContainerCreating", f"its node does not start it: {_obstacles(pod)}", ""
    return "Pending", "it does not start: its node says nothing about it", ""


def _obstacles(pod: Object) -> str:
    """What a node may lack that has not made the containers, since the node does not say it.
    edgeai itself makes the objects of its own volumes, so the others come first.
    """
    volumes = mappings(mapping(pod.get("spec")).get("volumes"))
    # A kubelet names a missing volume in Events alone, so the pod's own spec has to serve.
    volumes.sort(key=lambda volume: str(volume.get("name", "")).startswith(_OWN_VOLUME))
    needs = [
        f"the {type_} {source[key]} of volume {volume.get('name', '')}"
        for volume in volumes
        for type_, field, key in _VOLUME_SOURCES
        # A kubelet starts a pod without an optional source, so such a source is no obstacle.
        if (source := mapping(volume.get(field))).get(key) and not source.get("optional")
    ]
    if not needs:
        return "the image or a volume is not there yet"
    more = ["another volume"] if len(needs) > _MAX_NEEDS else []
    return ", or ".join(["the image is not there yet", *needs[:_MAX_NEEDS], *more])


_VOLUME_SOURCES: Final = (("ConfigMap", "configMap", "name"), ("Secret", "secret", "secretName"))
_OWN_VOLUME: Final = "edgeai-"
_MAX_NEEDS: Final = 2  # objects of volumes that one message names


def _is_cut_off(pod: Object) -> bool:
    """Whether the node controller has marked the pod, because its node is silent. A node itself
    never says that all containers are ready and the pod is not, unless the pod has readiness gates.
    """
    containers, ready = (condition_of(pod, type_) for type_ in ("ContainersReady", "Ready"))
    is_marked = containers.get("status") == "True" and ready.get("status") == "False"
    # A readiness gate is a third party that may call the pod not ready.
    has_gates = bool(mapping(pod.get("spec")).get("readinessGates"))
    return phase_of(pod) == "Running" and is_marked and not has_gates
