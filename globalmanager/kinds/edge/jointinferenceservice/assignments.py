"""Computes the assignments: what each edge node must hold of a JointInferenceService.

A node holds the service as long as an edge worker belongs to the node or still runs on it. So a
worker can report until its end, also after an edit of the spec.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from edgeai.api.jointinferenceservice import JointInferenceServiceSpec
from edgeai.api.objects import has_role, is_being_deleted
from edgeai.api.pod_state import node_of, phase_of
from edgeai.api.resources import DEPLOYMENTS, PODS, ObjectRef
from edgeai.api.status import mapping
from edgeai.ids import NodeName, is_subdomain
from globalmanager.contract import Assignment, Observed, ServicePort
from globalmanager.kinds.edge import grants
from globalmanager.kinds.edge.jointinferenceservice.model_rollout import Contents
from globalmanager.kinds.edge.jointinferenceservice.spec import EDGE, FLEET
from globalmanager.kinds.edge.jointinferenceservice.workers import (
    PORT,
    hot_model,
    service_name,
    worker_name,
)
from globalmanager.kinds.edge.references import model_ref
from globalmanager.kinds.edge.worker_form import fixed_node


def assignments(observed: Observed) -> Mapping[NodeName, Assignment]:
    """Node -> assignment, with a grant for each worker that may run on the node.

    The body depends only on the generation and the node, because the version is the generation. The
    GlobalManager would never send a body that changed without a new version. The worker has one
    name when the spec fixes the node, another name when Kubernetes chooses the node, and a third
    one in a fleet. The body grants all three names, and the GlobalManager takes reports of those
    that may run on the node now. When the spec has moved the worker, the worker of its former node
    has the same name until the former pod ends.
    """
    # The nodes drop the task of a job that is going.
    if is_being_deleted(observed.object):
        return {}
    service, spec = observed.ref.name, observed.spec
    fixed = fixed_node(spec.edge_worker) if spec else ""
    # One template makes all pods, so all edge workers have one secret.
    grant = grants.grant(observed, EDGE)
    common = Assignment.of(
        observed,
        # A wrong edit keeps the grants: the workers of the last valid spec still report.
        spec=_excerpt(spec) if spec else {},
        workers={},
        # The relay lets an edge worker reach its cloud worker and no other Service of the cluster.
        targets=(ServicePort(service_name(service), PORT),),
    )
    contents = Contents(observed, _input(observed))
    name = worker_name(service, EDGE)
    pods = _fleet_pods(observed)
    members, others = _members(observed, pods), frozenset(_other_nodes(observed, pods))
    by_node: dict[NodeName, Assignment] = {}
    # A fleet has thousands of nodes, so what they have in common is computed once.
    for node in sorted(members | others):
        alone = (name, worker_name(service, EDGE, node))
        member = worker_name(service, FLEET, node)
        body = msgspec.structs.replace(common.body, workers=dict.fromkeys((*alone, member), grant))
        reporting = frozenset((member,) if node in members else ())
        by_node[node] = msgspec.structs.replace(
            common,
            body=body,
            reporting=reporting.union(alone) if node in others else reporting,
            # Two nodes may report as one worker for a while. From the former node only counts are
            # taken: its last report must not hide what the present node says.
            former=frozenset((name,) if fixed not in ("", node) else ()),
            inputs=contents.of(node),
        )
    return by_node


def nodes(observed: Observed) -> list[NodeName]:
    """The nodes where edge workers belong or run, sorted."""
    pods = _fleet_pods(observed)
    return sorted(_members(observed, pods).union(_other_nodes(observed, pods)))


def _fleet_pods(observed: Observed) -> dict[str, NodeName]:
    """Name of each pod of a fleet -> its node."""
    children = observed.children.items()
    return {ref.name: NodeName(node_of(child)) for ref, child in children if ref.type == PODS}


def _members(observed: Observed, pods: Mapping[str, NodeName]) -> frozenset[NodeName]:
    """The nodes of a fleet, and those where one of its workers still runs."""
    return frozenset((*observed.nodes, *pods.values()))


def _other_nodes(observed: Observed, pods: Collection[str]) -> Iterator[NodeName]:
    """The nodes where edge workers belong or run that are not of a fleet."""
    return (NodeName(node) for node in _named_nodes(observed, pods) if is_subdomain(node))


def _excerpt(spec: JointInferenceServiceSpec) -> dict[str, Any]:
    worker = spec.edge_worker
    # No template and no secret: the ledger of a node holds what the node needs to know.
    edge: dict[str, Any] = {"model": {"name": worker.model.name}, "nodeName": fixed_node(worker)}
    if worker.mining:
        edge["hardExampleMining"] = msgspec.to_builtins(worker.mining)
    return {"edgeWorker": edge}


def _named_nodes(observed: Observed, of_fleet: Collection[str]) -> Iterator[str]:
    """The nodes that the spec, the edge Deployment or the edge pods name for workers."""
    spec: JointInferenceServiceSpec | None = observed.spec
    yield fixed_node(spec.edge_worker) if spec else ""
    for ref, child in observed.children.items():
        if ref.type == DEPLOYMENTS and has_role(child, EDGE):
            # The Deployment still says where the workers are while the spec cannot be read.
            template = mapping(mapping(child.get("spec")).get("template"))
            yield str(mapping(template.get("spec")).get("nodeName", ""))
    for pod in observed.pods:
        if pod["metadata"]["name"] in of_fleet:
            continue
        # A pod that is being deleted counts: its worker may report its last numbers.
        if has_role(pod, EDGE) and phase_of(pod) not in ("Succeeded", "Failed"):
            yield node_of(pod)


def _input(observed: Observed) -> ObjectRef | None:
    """The Model whose content the node's LocalController fetches for the edge worker."""
    spec: JointInferenceServiceSpec | None = observed.spec
    if spec is not None:
        name = spec.edge_worker.model.name if spec.edge_worker.model.is_hot else ""
    else:  # the workers of the last valid spec still need their model
        types = (DEPLOYMENTS, PODS)
        edge = (child for ref, child in observed.children.items() if ref.type in types)
        name = next((hot_model(child) for child in edge if has_role(child, EDGE)), "")
    return model_ref(observed, name) if name else None
