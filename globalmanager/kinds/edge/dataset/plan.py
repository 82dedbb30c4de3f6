"""Reads the spec of a Dataset, and plans the Dataset: says whether the node has counted the samples
and whether the node is in contact.
"""

from datetime import datetime
from typing import Final

from edgeai.api.dataset import DatasetSpec
from edgeai.api.objects import is_being_deleted
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.specs import check_object_name, parse_spec
from edgeai.api.status import WAITING, Finding, Truth, worker_entries
from edgeai.ids import NodeName, WorkerName
from globalmanager.contract import Job, Observed, Plan
from globalmanager.kinds.edge import references as refs
from globalmanager.kinds.edge.node_reports import is_present, reason_of
from globalmanager.kinds.shared import contacts, status, storage

COUNTED: Final = "Counted"


def read(object_: Object) -> DatasetSpec:
    """The accepted spec. Raises: InvalidSpec"""
    spec = parse_spec(object_, DatasetSpec)
    storage.check_url(spec.url)
    # The node is the address of the assignment: without one, nobody would count.
    check_object_name(spec.node_name, "spec.nodeName", "Node")
    return spec


def references(job: Job) -> frozenset[ObjectRef]:
    """The Node that the spec names. Empty while the spec is not accepted."""
    spec: DatasetSpec | None = job.spec
    return frozenset({refs.node_ref(spec.node_name)} if spec else ())


def plan(observed: Observed, now: datetime) -> Plan:
    if is_being_deleted(observed.object):
        return Plan()
    spec: DatasetSpec | None = observed.spec
    nodes = [NodeName(spec.node_name)] if spec else []
    connected, requeue_after_s = contacts.edge_connected(observed, nodes, now)
    findings = [*_findings(observed), *([connected] if connected else [])]
    return Plan(
        status=status.described(observed, findings, now),
        events=status.events(observed, findings),
        requeue_after_s=requeue_after_s,
    )


def _findings(observed: Observed) -> tuple[Finding, ...]:
    # A change of the prefixes takes effect without an edit of the Dataset.
    fault = observed.invalid or storage.fault_of_place(observed.spec.url, observed.settings)
    if fault is not None:
        return status.rejected(fault), refs.UNRESOLVED
    spec: DatasetSpec = observed.spec
    obstacle = refs.node_obstacle(observed, spec.node_name, "spec.nodeName")
    resolved = refs.resolved([obstacle] if obstacle else [])
    return status.accepted(), resolved, _counted(observed, spec.node_name)


def _counted(observed: Observed, node: str) -> Finding:
    """Condition Counted, from the node's last report on this generation of the spec.

    The message has no number. A message with the number would cause another write with every count.
    """
    entry = worker_entries(status.status_of(observed)).get(WorkerName(observed.ref.name), {})
    # After an edit of nodeName or url, the entry is still that of the former data.
    if entry.get("node") != node or not is_present(entry, observed.generation):
        message = f"node {node} has not counted the samples yet"
        return Finding(COUNTED, Truth.FALSE, WAITING, message)
    if entry.get("status") == "running":
        return Finding(COUNTED, Truth.TRUE, COUNTED, f"node {node} counts the samples")
    message = str(entry.get("reason") or f"node {node} cannot count the samples")
    return Finding(COUNTED, Truth.FALSE, reason_of(entry), message)
