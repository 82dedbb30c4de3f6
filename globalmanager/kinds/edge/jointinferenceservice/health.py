"""Condition Running, the phase and the numbers of a JointInferenceService.

This module reads the objects that exist and the reports in the status, and never the spec. So the
status of running workers is right also while the spec is wrong.
"""

from collections.abc import Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any

from edgeai.api import pod_state
from edgeai.api.jointinferenceservice import Phase
from edgeai.api.objects import LABEL_ROLE, has_role, is_being_deleted, label_of
from edgeai.api.resources import DEPLOYMENTS, PODS, Object, ObjectRef
from edgeai.api.status import STARTING, Finding, Truth, condition_of
from edgeai.faults import pod_faults
from edgeai.faults.faults import Fault, job_fault
from edgeai.faults.pod_faults import Examination
from globalmanager.contract import Observed
from globalmanager.kinds.edge.jointinferenceservice import totals
from globalmanager.kinds.edge.jointinferenceservice.spec import CLOUD, EDGE, RUNNING
from globalmanager.kinds.edge.jointinferenceservice.workers import deployment_name
from globalmanager.kinds.shared import status
from globalmanager.kinds.shared.silent_nodes import (
    NODE_NOT_READY,
    is_in_session,
    last_report,
    silent_since,
)


def running(observed: Observed, now: datetime) -> tuple[Finding, Phase]:
    """The condition Running, and the phase that belongs to the condition.

    Where a node is silent for Kubernetes, the report of its LocalController on the edge worker
    counts.
    """
    # When an edge node has no contact to Kubernetes, the node controller marks its pods as not
    # ready, although they may serve. The LocalController of the node has its own session.
    silent_pods = _silent_pods(observed)
    serving_pods = [pod for pod in silent_pods if _runs_at_edge(observed, pod)]
    faults = {role: fault for role in (CLOUD, EDGE) if (fault := _fault(observed, role, now))}
    absent = [role for role in (CLOUD, EDGE) if not is_available(observed, role)]
    if serving_pods:
        absent = [role for role in absent if role != EDGE]
    if not absent:
        message = "both workers are available"
        # A rollout that is stuck leaves the old workers available. The service runs, and the update
        # does not.
        message += f"; but {_faults_text(faults)}" if faults else ""
        if serving_pods:
            message += (
                f"; Kubernetes has not heard of node {pod_state.node_of(serving_pods[0])}, whose "
                "LocalController reports that the edge worker runs"
            )
        return Finding(RUNNING, Truth.TRUE, "WorkersAvailable", message), Phase.RUNNING
    culprits = {role: faults[role] for role in absent if role in faults}
    # The node is silent and no fault says that the worker has failed: what the LocalController
    # reports decides.
    if absent == [EDGE] and silent_pods and not culprits:
        return _silent_node_finding(observed, silent_pods[0]), Phase.PENDING
    if not culprits:
        message = f"not available yet: {' and '.join(absent)} worker"
        return Finding(RUNNING, Truth.FALSE, STARTING, message), Phase.PENDING
    # A fault that needs a change by a person wins over a fault that may pass.
    worst = min(culprits.values(), key=attrgetter("is_pending"))
    # Sedna's Failed is final, so one failed probe ends a service. Here the phase follows the pods.
    phase = Phase.PENDING if worst.is_pending else Phase.FAILED
    return Finding(RUNNING, Truth.FALSE, worst.reason, _faults_text(culprits)), phase


def has_workers(observed: Observed) -> bool:
    return any(_deployment(observed, role) for role in (CLOUD, EDGE))


def is_available(observed: Observed, role: str) -> bool:
    condition = condition_of(_deployment(observed, role), "Available")
    # Sedna judged by the last condition in the list, and called a start a failure.
    if condition.get("status") == Truth.TRUE:
        return True
    # A fleet serves while one of its workers does: some node of a large fleet is always down.
    children = observed.children.items()
    return role == EDGE and any(
        ref.type == PODS and pod_state.is_ready(child) for ref, child in children
    )


def _deployment(observed: Observed, role: str) -> Object:
    name = deployment_name(observed.ref.name, role)
    return observed.children.get(ObjectRef(DEPLOYMENTS, observed.ref.namespace, name), {})


def examine(observed: Observed, now: datetime) -> Examination:
    """The faults of the workers. A failed pod counts until its Deployment has another one."""
    # A Deployment leaves its failed pods behind. Once another pod serves, they are history.
    roles = [role for role in (CLOUD, EDGE) if is_available(observed, role)]
    pods = (pod for role in (CLOUD, EDGE) for pod in _audible(observed, role))
    return pod_faults.examine(
        (
            pod
            for pod in pods
            if pod_state.phase_of(pod) != "Failed" or label_of(pod, LABEL_ROLE) not in roles
        ),
        now,
    )


def _audible(observed: Observed, role: str) -> list[Object]:
    """The pods of a role, without edge workers of which a silent node says nothing."""
    pods = (pod for pod in observed.pods if has_role(pod, role))
    # Only edge workers have a second witness, the LocalController.
    return [pod for pod in pods if role == CLOUD or silent_since(pod) is None]


def _fault(observed: Observed, role: str, now: datetime) -> Fault | None:
    # A pod's own words are nearer to the cause than the condition of its Deployment.
    return pod_faults.first_fault(_audible(observed, role), now) or _refusal(observed, role)


def _refusal(observed: Observed, role: str) -> Fault | None:
    """Why the API refuses the pods of a Deployment, for example by a quota. Only the status of the
    Deployment says so, because Kubernetes makes its pods.
    """
    name = deployment_name(observed.ref.name, role)
    entry = condition_of(_deployment(observed, role), "ReplicaFailure")
    if entry.get("status") != Truth.TRUE:
        return None
    return job_fault("Forbidden", f"Deployment {name}: {entry.get('message')}")


def _silent_pods(observed: Observed) -> list[Object]:
    """The pods of edge workers whose node is silent for Kubernetes."""
    pods = (pod for pod in observed.pods if has_role(pod, EDGE) and not is_being_deleted(pod))
    return [pod for pod in pods if silent_since(pod) is not None]


def _runs_at_edge(observed: Observed, pod: Object) -> bool:
    """Whether the LocalController of the pod's node says now that the worker runs."""
    # Without a session, the last report may be hours old.
    return is_in_session(observed, pod) and last_report(observed, pod).get("status") == "running"


def _silent_node_finding(observed: Observed, pod: Object) -> Finding:
    """The condition Running of a service whose edge worker ran before its node fell silent."""
    text = f"edge worker: Kubernetes has not heard of node {pod_state.node_of(pod)}, and its "
    # Unknown: with both lines cut, nobody can say whether the worker runs.
    if not is_in_session(observed, pod):
        text += "LocalController has no session: the worker may run, and its reports wait there"
        return Finding(RUNNING, Truth.UNKNOWN, NODE_NOT_READY, text)
    report = last_report(observed, pod)
    state = str(report.get("status") or "")
    if not state:
        text += "LocalController has no report of the worker"
        return Finding(RUNNING, Truth.UNKNOWN, NODE_NOT_READY, text)
    text += f"LocalController reports that the worker is {state}: {report.get('reason') or ''}"
    return Finding(RUNNING, Truth.FALSE, NODE_NOT_READY, text.removesuffix(": "))


def _faults_text(faults: Mapping[str, Fault]) -> str:
    return "; ".join(f"{role} worker: {fault.message}" for role, fault in faults.items())


def numbers(observed: Observed) -> dict[str, Any]:
    return {
        "active": sum(pod_state.is_active(pod) for pod in observed.pods),
        "failed": sum(pod_state.phase_of(pod) == "Failed" for pod in observed.pods),
        **totals.status_fields(status.status_of(observed), observed.type.group),
    }
