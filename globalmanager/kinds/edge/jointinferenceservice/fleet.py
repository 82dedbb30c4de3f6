"""A fleet: one edge worker on each node with the labels of edgeWorker.nodeSelector.

A plan compares the nodes and the pods as they are now, so it does not matter in which order nodes
come, go and change their labels. A node that is out of contact keeps its worker, because its Node
still exists. The pods of all nodes have one template, so that the plan of a large fleet makes a
pod only where it must create one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final

import msgspec

from edgeai.api.jointinferenceservice import JointInferenceServiceSpec
from edgeai.api.objects import SPEC_HASH, has_role, is_being_deleted
from edgeai.api.pod_state import is_active, node_of, phase_of
from edgeai.api.resources import PODS, Object, ref_of
from edgeai.api.status import Finding, Truth, condition_of
from edgeai.faults import pod_faults
from edgeai.ids import MAX_NAME_CHARS, NodeName, WorkerName
from edgeai.labels import LABEL_WORKER
from globalmanager.contract import Action, Create, Delete, Observed
from globalmanager.kinds.edge.jointinferenceservice.spec import EDGE, RUNNING
from globalmanager.kinds.edge.jointinferenceservice.workers import worker_name
from globalmanager.kinds.shared import children, lifecycle, objects, status
from globalmanager.kinds.shared.children import Stages
from globalmanager.kinds.shared.contacts import named
from globalmanager.kinds.shared.lifecycle import Timers
from globalmanager.kinds.shared.silent_nodes import silent_since

REPLACED_AFTER_S: Final = 30.0
"""Seconds. A node that refuses a pod refuses it at once, so a younger failed pod stays."""
_MAX_NEW_PODS: Final = 100
"""In one plan. The first pods cause the next plan."""
_SHARE_AT_ONCE: Final = 10
"""A change of the template replaces the workers of one node in ten at a time, and at least one."""
_MAX_LABEL_CHARS: Final = 63
_MAX_NAMED: Final = 10  # nodes in .status.fleet
READY: Final = "ready"
FAILED: Final = "failed"
SILENT: Final = "silent"
STARTING: Final = "starting"
_ACTIVE: Final = (READY, SILENT)
_WORST: Final = (FAILED, SILENT, STARTING)
"""The states of nodes whose worker does not serve, or of which nobody knows; the worst first."""


class Fleet(msgspec.Struct, frozen=True):
    """The nodes of a fleet and its pods, as they are now."""

    nodes: Sequence[NodeName]
    """The nodes that should have a worker, sorted."""
    pods: Mapping[str, Object]
    """Node -> pod, also on nodes that should have none."""
    states: Mapping[str, str]
    """Node of `nodes` -> state of its worker."""

    def in_state(self, *states: str) -> list[NodeName]:
        """The nodes in these states, in the order of the states."""
        nodes: dict[str, list[NodeName]] = {state: [] for state in states}
        for node in self.nodes:
            if (state := self.states[node]) in nodes:
                nodes[state].append(node)
        return list(chain.from_iterable(nodes.values()))


def fleet_of(observed: Observed) -> Fleet | None:
    """The fleet of the service; None when the service has none.

    With a spec that is not accepted, the nodes are those that have a worker.
    """
    spec: JointInferenceServiceSpec | None = observed.spec
    pods = {node_of(child): child for ref, child in observed.children.items() if ref.type == PODS}
    if not (spec.edge_worker.per_node if spec else pods):
        return None
    nodes = sorted(observed.nodes if spec else map(NodeName, pods))
    return Fleet(nodes, pods, {node: _state(pods.get(node)) for node in nodes})


def condensed(observed: Observed, fleet: Fleet) -> Observed:
    """The service with a few pods of the fleet: some that fail or are silent, and one that serves.
    Thousands of pods would take seconds, and a message names a few of them.
    """
    names = {ref.name for ref in observed.children if ref.type == PODS}
    sample = [*fleet.in_state(*_WORST)[:_MAX_NAMED], *fleet.in_state(READY)[:1]]
    pods = {ref_of(PODS, pod): pod for node in sample if (pod := fleet.pods.get(node)) is not None}
    others = {ref: child for ref, child in observed.children.items() if ref.type != PODS}
    rest = (pod for pod in observed.pods if pod["metadata"]["name"] not in names)
    return msgspec.structs.replace(
        observed, children={**others, **pods}, pods=(*rest, *pods.values())
    )


def places(fleet: Fleet) -> list[NodeName]:
    """The nodes where workers belong or run, sorted."""
    return sorted({*fleet.nodes, *map(NodeName, fleet.pods)})


def without_pods(observed: Observed) -> Observed:
    """The same, without the pods of a fleet among the children."""
    others = {ref: child for ref, child in observed.children.items() if ref.type != PODS}
    return msgspec.structs.replace(observed, children=others)


def is_ready(pod: Object | None) -> bool:
    return (
        pod is not None
        and not is_being_deleted(pod)
        and condition_of(pod, "Ready").get("status") == "True"
    )


def _state(pod: Object | None) -> str:
    if pod is None or is_being_deleted(pod):
        return STARTING
    if condition_of(pod, "Ready").get("status") == "True":
        return READY
    if silent_since(pod) is not None:
        return SILENT
    return FAILED if pod_faults.first_fault([pod]) else STARTING


# ---- what the status says -----------------------------------------------------------------------


def no_nodes() -> Finding:
    """The condition Running of a fleet without a node."""
    message = (
        "no node has the labels of spec.edgeWorker.nodeSelector: label the nodes that should run "
        "an edge worker, or correct the labels"
    )
    return Finding(RUNNING, Truth.FALSE, "NoNodes", message)


def status_fields(observed: Observed, fleet: Fleet | None) -> dict[str, Any]:
    """The fields of .status about a fleet, of the same size for a fleet of any size."""
    if fleet is None:
        # Only a field that exists: None removes it.
        return {"fleet": None} if "fleet" in status.status_of(observed) else {}
    counts = Counter(fleet.states.values())
    worst = fleet.in_state(*_WORST)[:_MAX_NAMED]
    pods = [fleet.pods[node] for node in fleet.pods if fleet.states.get(node) not in _ACTIVE]
    cloud = [pod for pod in observed.pods if not has_role(pod, EDGE)]
    inactive = [*cloud, *pods]
    active = sum(map(is_active, inactive)) + len(fleet.pods) - len(pods)
    return {
        "active": active,
        "failed": sum(phase_of(pod) == "Failed" for pod in inactive),
        "edgeNodes": named(places(fleet)) or None,
        "fleet": {
            "nodes": len(fleet.nodes),
            **{state: counts[state] for state in (READY, *_WORST)},
            "worst": [{"node": node, "state": fleet.states[node]} for node in worst],
        },
    }


# ---- what a plan does ---------------------------------------------------------------------------


def stages(
    observed: Observed, fleet: Fleet, template: Object, now: datetime
) -> tuple[Stages, Timers]:
    """First the deletions, then the new pods.

    Args: template: of every pod, without a node
    """
    revision = objects.content_hash(template)
    surplus = [pod for node, pod in fleet.pods.items() if node not in fleet.states]
    failures = [fleet.pods[node] for node in fleet.in_state(FAILED)]
    failed, timers = lifecycle.replacement(failures, now, after_s=REPLACED_AFTER_S)
    outdated = _outdated(fleet, revision)
    lacking = [node for node in fleet.nodes if node not in fleet.pods][:_MAX_NEW_PODS]
    gone = dict.fromkeys((*_deletions(surplus), *failed, *_deletions(outdated)))
    new = tuple(pod_of(observed, node, template, revision) for node in lacking)
    steps: tuple[tuple[Action, ...], ...] = (tuple(gone), new)
    return tuple(stage for stage in steps if stage), timers


def _deletions(pods: Iterable[Object]) -> Iterable[Delete]:
    return (lifecycle.deletion(pod) for pod in pods if not is_being_deleted(pod))


def _outdated(fleet: Fleet, revision: str) -> list[Object]:
    """The pods of an earlier template that are replaced now. A pod that serves is replaced only
    while few others do not. A silent node gets its new pod when it is back: the worker goes on
    (I11), and a network that comes back does not restart all workers at once.
    """
    old = [node for node, pod in fleet.pods.items() if _revision(pod) != revision]
    broken = [node for node in old if fleet.states.get(node) in (FAILED, STARTING)]
    serving = sorted(node for node in old if fleet.states.get(node) == READY)
    counts = Counter(fleet.states.values())
    room = max(1, len(fleet.nodes) // _SHARE_AT_ONCE) - counts[FAILED] - counts[STARTING]
    return [fleet.pods[node] for node in (*broken, *serving[: max(0, room)])]


def _revision(pod: Object) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(SPEC_HASH, ""))


def pod_of(observed: Observed, node: NodeName, template: Object, revision: str) -> Create:
    """The pod of one node."""
    name = worker_name(observed.ref.name, EDGE, node)
    # The value of a label is shorter than the name of a node may be. Without the label, the
    # LocalController still hears the worker, and does not watch its pod.
    marks = {LABEL_WORKER: name} if len(name) <= _MAX_LABEL_CHARS else {}
    metadata = template["metadata"]
    annotations = {**metadata.get("annotations", {}), SPEC_HASH: revision}
    labels = {**metadata["labels"], **marks}
    located = {
        "metadata": {"labels": labels, "annotations": annotations},
        "spec": {**template["spec"], "nodeName": node},
    }
    pod = children.pod(observed, name=_pod_name(name), role=EDGE, template=located, is_kept=True)
    return children.without_token(pod)


def _pod_name(worker: WorkerName) -> str:
    if len(worker) <= MAX_NAME_CHARS:
        return worker
    digest = objects.content_hash(worker)
    return f"{worker[: MAX_NAME_CHARS - len(digest) - 1]}-{digest}"
