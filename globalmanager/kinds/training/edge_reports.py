"""What the LocalControllers of edge nodes watch of a training job, and what their reports say.

The containers of a training job report nothing themselves. The LocalController watches the pods of
its node and reports how each pod does. Such a report counts only for the pod that it names by its
uid, and only from the node to which it is bound. Others change nothing for the job.
"""

import re
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from common.wire import (
    EXIT_CODES,
    POD_CREATED_AT,
    POD_UID,
    TERMINAL,
    THE_NODE_ITSELF,
    AssignmentBody,
    WorkerGrant,
)
from edgeai.api.objects import is_being_deleted
from edgeai.api.pod_state import node_of
from edgeai.api.resources import Object
from edgeai.api.status import mapping
from edgeai.ids import NodeName, WorkerName, is_subdomain
from globalmanager.contract import Assignment, Observed, ReportRefused, WorkerReport, task_key
from globalmanager.kinds.shared import status as rules
from globalmanager.kinds.shared import worker_status
from globalmanager.kinds.shared.lifecycle import own_pods
from globalmanager.kinds.shared.stored import cut
from globalmanager.kinds.shared.worker_status import item_bytes
from globalmanager.kinds.training import replicas
from globalmanager.kinds.training.framework import KubeflowJob

MAX_WORKERS_BYTES: Final = 512 * 1024
"""Of .status.workers in JSON. Kubernetes stores objects of at most 1.5 MiB."""
# Reports come from nodes, and one node must not fill the object of a job.
_MAX_REASON_BYTES: Final = 256
_MAX_DETAIL_BYTES: Final = {POD_UID: 64, POD_CREATED_AT: 40, EXIT_CODES: 512}
_MAX_ID_CHARS: Final = 64
_CODE: Final = re.compile(r"([a-z0-9-]{1,63})=([0-9]{1,3})\Z")


# ---- what a node must hold ----------------------------------------------------------------------


def assignments(observed: Observed) -> Mapping[NodeName, Assignment]:
    """Node -> assignment, for each node that has a pod of the job."""
    # The pods go with the job, so no node has to hold it any more.
    if is_being_deleted(observed.object):
        return {}
    # Also those that have ended: their LocalControllers may still have to report the end.
    pods = own_pods(observed)
    # `nodeName` of a template is the user's text and may name no node at all.
    nodes = {NodeName(name) for name in {*map(node_of, pods)} if is_subdomain(name)}
    if not nodes:
        return {}
    # An edit that makes the spec wrong must not end the watch of replicas that run.
    if observed.spec is None:
        grants = {node: _grants(pods, node) for node in nodes}
    else:
        grants = _grants_of_spec(observed, observed.spec, nodes)
    # Nodes with the same grants share one body, so that the body is encoded once.
    ref, bodies = observed.ref, {}
    for workers in grants.values():
        if id(workers) not in bodies:
            bodies[id(workers)] = AssignmentBody(
                namespace=ref.namespace, name=ref.name, workers=workers
            )
    key, uid, version = task_key(ref), observed.uid, observed.generation
    return {
        node: Assignment(key, uid, version, bodies[id(grants[node])]) for node in sorted(grants)
    }


def _grants_of_spec(
    observed: Observed, spec: KubeflowJob, nodes: set[NodeName]
) -> dict[NodeName, dict[WorkerName, WorkerGrant]]:
    """Node -> the replicas that may run there. Nodes that no template names share one dict.

    The replicas depend only on the generation and the node, because the version of an assignment is
    the generation. So a replica whose template names no node has a grant on every node of the job.
    """
    by_place: dict[str, dict[WorkerName, WorkerGrant]] = {}
    for replica in spec.replicas:
        place = str(replica.template["spec"].get("nodeName") or "")
        grants = by_place.setdefault(place, {})
        for index in range(replica.count):
            grants[replicas.name_of(observed.ref.name, replica.type, index)] = THE_NODE_ITSELF
    free = by_place.pop("", {})
    return {node: free | by_place[node] if node in by_place else free for node in nodes}


def _grants(pods: list[Object], node: str) -> dict[WorkerName, WorkerGrant]:
    """The replicas whose pods are on the node, for a job whose spec is not accepted."""
    names = (WorkerName(pod["metadata"]["name"]) for pod in pods if node_of(pod) == node)
    return dict.fromkeys(sorted(names), THE_NODE_ITSELF)


# ---- what a report changes ----------------------------------------------------------------------


class ReplicaFold(worker_status.WorkerFold):
    """Puts the reports about pods into .status.workers."""

    max_workers = sys.maxsize  # a job has at most as many replicas as its spec declares

    def is_stale(self, entry: Mapping[str, Any], report: WorkerReport) -> bool:
        """Whether the entry already says more: about a younger pod, or about the end of the same
        pod. Reports may arrive twice and out of order, and the status never goes back.
        """
        before, new = mapping(entry.get("details")), report.body.details
        if before.get(POD_UID) == new.get(POD_UID):
            return worker_status.is_stale(entry, report)
        # A ledger that forgot the task counts from 1 again, so the age of the pods decides.
        return str(before.get(POD_CREATED_AT, "")) > new.get(POD_CREATED_AT, "")

    def entry(self, entry: Mapping[str, Any], report: WorkerReport) -> dict[str, Any]:
        body = report.body
        # Only what the rules below read, so a node cannot fill the status with other details.
        details = {
            key: cut(body.details[key], limit)
            for key, limit in _MAX_DETAIL_BYTES.items()
            if key in body.details
        }
        fields = {
            "node": report.node,
            "instance": report.ledger_id[:_MAX_ID_CHARS],
            "attempt": report.attempt,
            "status": body.status,
            "reason": cut(body.reason, _MAX_REASON_BYTES),
            "details": details,
            "observedAt": cut(body.observed_at, _MAX_ID_CHARS),
        }
        return worker_status.without_empty_fields(fields)

    def bounded(self, report: WorkerReport, desired: dict[str, Any]) -> dict[str, Any]:
        """`desired`, if need be without the reason, which decides nothing. Raises: ReportRefused"""
        before = self.entries.get(report.worker)
        others = self.sizes.total - (item_bytes(report.worker, before) if before else 0)
        lean = {key: value for key, value in desired.items() if key != "reason"}
        for entry in (desired, lean):
            if others + item_bytes(report.worker, entry) <= MAX_WORKERS_BYTES:
                return entry
        raise ReportRefused(f"status.workers is full: its entries have {MAX_WORKERS_BYTES} bytes")


# ---- what a report says of a pod ----------------------------------------------------------------


class Word(NamedTuple):
    """What the LocalController of a pod's node has said last about this pod."""

    status: str
    reason: str
    exit_codes: Mapping[str, int]
    """Container -> exit code, of a pod that has ended."""

    @property
    def is_final(self) -> bool:
        return self.status in TERMINAL


def word_of(observed: Observed, pod: Object) -> Word | None:
    """None when the LocalController of the pod's node has not reported this very pod."""
    workers = mapping(rules.status_of(observed).get("workers"))
    entry = mapping(workers.get(pod["metadata"]["name"]))
    node, uid = node_of(pod), pod["metadata"].get("uid")
    if not node or not uid or entry.get("node") != node:
        return None
    details = mapping(entry.get("details"))
    if details.get(POD_UID) != uid:
        return None
    codes = _exit_codes(details.get(EXIT_CODES))
    return Word(str(entry.get("status", "")), str(entry.get("reason", "")), codes)


def _exit_codes(text: Any) -> dict[str, int]:
    parts = (_CODE.match(part) for part in text.split(",")) if isinstance(text, str) else ()
    return {part[1]: int(part[2]) for part in parts if part}
