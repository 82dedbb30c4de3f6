"""A fleet: one edge worker on each node with the labels of edgeWorker.nodeSelector.

A plan compares the nodes and the pods as they are now, so it does not matter in which order nodes
come, go and change their labels. A node that is out of contact keeps its worker, because its Node
still exists. The pods of all nodes have one template, so that the plan of a large fleet makes a
pod only where it must create one.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final

import msgspec

from edgeai.api import slices
from edgeai.api.jointinferenceservice import JointInferenceServiceSpec
from edgeai.api.objects import SPEC_HASH, has_role, is_being_deleted
from edgeai.api.pod_state import container_states, is_active, is_ready, phase_of
from edgeai.api.resources import CONFIG_MAPS, PODS, Object, ObjectRef, ref_of
from edgeai.api.status import Finding, Truth, condition_of, mapping, mappings
from edgeai.faults.container_faults import COMING_UP
from edgeai.ids import NodeName
from edgeai.labels import LABEL_WORKER
from edgeai.times import rfc3339
from globalmanager.contract import Action, Create, Delete, Observed, Plan
from globalmanager.kinds.edge.jointinferenceservice import reachability, totals
from globalmanager.kinds.edge.jointinferenceservice.spec import EDGE, FLEET, RUNNING
from globalmanager.kinds.edge.jointinferenceservice.workers import worker_name
from globalmanager.kinds.shared import children, lifecycle, objects, status, worker_status
from globalmanager.kinds.shared.children import Stages
from globalmanager.kinds.shared.contacts import named
from globalmanager.kinds.shared.lifecycle import Timers
from globalmanager.kinds.shared.new_pods import new_pods
from globalmanager.kinds.shared.silent_nodes import silent_since

REPLACED_AFTER_S: Final = 30.0
"""Seconds. A node that refuses a pod refuses it at once, so a younger failed pod stays."""
_SHARE_AT_ONCE: Final = 10
"""A change of the template replaces the workers of one node in ten at a time, and at least one."""
_MAX_LABEL_CHARS: Final = 63
_DIGITS: Final = re.compile(r"[0-9]{1,16}\Z")
_MAX_NAMED: Final = 10  # nodes in .status.fleet
READY: Final = "ready"
FAILED: Final = "failed"
SILENT: Final = "silent"
STARTING: Final = "starting"
_NO_COUNTS: Final[Mapping[str, Any]] = {"taskInfo": {}, "countedElsewhere": {}}
_PACE_S: Final = 5.0
"""Seconds. Some pod of a large fleet changes all the time, and its status would be written as
often."""
_WORST: Final = (FAILED, SILENT, STARTING)
"""The states of nodes whose worker does not serve, or of which nobody knows; the worst first."""


class Fleet(msgspec.Struct, frozen=True):
    nodes: Sequence[NodeName]
    """The nodes that should have a worker, sorted."""
    pods: Mapping[str, Object]
    """Node -> pod, also on nodes that should have none."""
    states: Mapping[str, str]
    """Node of `nodes` -> state of its worker."""
    by_state: Mapping[str, Sequence[NodeName]]
    """State -> the nodes of `nodes` whose worker is in it."""

    def in_state(self, *states: str) -> list[NodeName]:
        return list(chain.from_iterable(self.by_state[state] for state in states))


def fleet_of(observed: Observed) -> Fleet | None:
    """The fleet of the service; None when the service has none.

    With a spec that is not accepted, the nodes are those that have a worker.
    """
    spec: JointInferenceServiceSpec | None = observed.spec
    pods: dict[str, Object] = {
        child["spec"].get("nodeName", ""): child
        for ref, child in observed.children.items()
        if ref.type == PODS
    }
    if not (spec.edge_worker.per_node if spec else pods):
        return None
    nodes = sorted(observed.nodes if spec else map(NodeName, pods))
    states: dict[str, str] = {}
    by_state: dict[str, list[NodeName]] = {state: [] for state in (READY, *_WORST)}
    for node in nodes:
        pod = pods.get(node)
        is_serving = pod is not None and is_ready(pod)
        state = READY if is_serving else _fault_state(pod, observed.nodes.get(node, {}))
        states[node] = state
        by_state[state].append(node)
    return Fleet(nodes, pods, states, by_state)


def condensed(observed: Observed, fleet: Fleet) -> Observed:
    """The service with a few pods of the fleet: some that fail or are silent, and one that serves;
    and with the entries of their workers. Thousands of pods would take seconds, and a message names
    a few of them.
    """
    names = {ref.name for ref in observed.children if ref.type == PODS}
    sample = [*fleet.in_state(*_WORST)[:_MAX_NAMED], *fleet.in_state(READY)[:1]]
    pods = {ref_of(PODS, pod): pod for node in sample if (pod := fleet.pods.get(node)) is not None}
    rest = (pod for pod in observed.pods if pod["metadata"]["name"] not in names)
    service = observed.ref.name
    state = status.status_of(observed)
    entries = {**mapping(state.get("workers"))}
    for name in (worker_name(service, FLEET, node) for node in sample):
        ref = ObjectRef(CONFIG_MAPS, observed.ref.namespace, slices.slice_name(service, name))
        # Without the counts, which are in the sums of the slices.
        entries[name] = {**slices.entry_of(observed.children.get(ref, {}), name), **_NO_COUNTS}
    return msgspec.structs.replace(
        observed,
        object={**observed.object, "status": {**state, "workers": entries}},
        children={**without_pods(observed).children, **pods},
        pods=(*rest, *pods.values()),
    )


def nodes_of(fleet: Fleet) -> list[NodeName]:
    """The nodes where workers belong or run, sorted."""
    surplus = fleet.pods.keys() - fleet.states.keys()
    return sorted([*fleet.nodes, *map(NodeName, surplus)])


def without_pods(observed: Observed) -> Observed:
    others = {ref: child for ref, child in observed.children.items() if ref.type != PODS}
    return msgspec.structs.replace(observed, children=others)


def _fault_state(pod: Object | None, node: Object) -> str:
    if pod is None:
        return STARTING
    if phase_of(pod) == "Failed" and not is_being_deleted(pod):
        return FAILED
    # A node out of contact neither starts nor ends its pod, whatever the pod said before.
    if silent_since(pod) is not None or condition_of(node, "Ready").get("status") == Truth.UNKNOWN:
        return SILENT
    if is_being_deleted(pod):
        return STARTING
    waits = (mapping(mapping(one.get("state")).get("waiting")) for one in container_states(pod))
    # The words of the fault come from `pod_faults`, which takes too long for thousands of pods.
    is_faulty = any(one.get("reason") not in (None, *COMING_UP) for one in waits)
    return FAILED if is_faulty else STARTING


# ---- what the status says -----------------------------------------------------------------------


NO_NODES: Final = Finding(
    RUNNING,
    Truth.FALSE,
    "NoNodes",
    "no node has the labels of spec.edgeWorker.nodeSelector: label the nodes that should run "
    "an edge worker, or correct the labels",
)


def status_fields(
    observed: Observed, fleet: Fleet | None, versions: list[dict[str, Any]]
) -> dict[str, Any]:
    """The fields of .status about a fleet, of the same size for a fleet of any size.

    Args: versions: of the workers' models
    """
    if fleet is None:
        # Only a field that exists: None removes it.
        return {"fleet": None} if "fleet" in status.status_of(observed) else {}
    worst = fleet.in_state(*_WORST)[:_MAX_NAMED]
    pods = [pod for node, pod in fleet.pods.items() if fleet.states.get(node) != READY]
    cloud = [pod for pod in observed.pods if not has_role(pod, EDGE)]
    inactive = [*cloud, *pods]
    current = mapping(status.status_of(observed).get("fleet"))
    active = sum(map(is_active, inactive)) + len(fleet.pods) - len(pods)
    return {
        "active": active,
        "failed": sum(phase_of(pod) == "Failed" for pod in inactive),
        "edgeNodes": named(nodes_of(fleet)) or None,
        "fleet": {
            "nodes": len(fleet.nodes),
            **{state: len(nodes) for state, nodes in fleet.by_state.items()},
            "worst": [{"node": node, "state": fleet.states[node]} for node in worst],
            **({"versions": versions or None} if versions or "versions" in current else {}),
            "updateTime": current.get("updateTime"),
        },
    }


def with_sums(observed: Observed) -> tuple[Observed, dict[str, Any]]:
    """The service with the present sums of its slices in .status, and the fields of .status that
    have changed with them. The fold of a report adds the sums that the last plan wrote.
    """
    maps = [child for ref, child in observed.children.items() if ref.type == CONFIG_MAPS]
    if not maps:
        return observed, {}
    sums: Counter[str] = Counter()
    for config_map in maps:
        sums.update(_counts(slices.summary_of(config_map)))
    before = status.status_of(observed)
    # Somebody may delete a slice, and a total never falls.
    counts = worker_status.greatest(before.get(worker_status.COUNTED_IN_SLICES), sums)
    fields: dict[str, Any] = {worker_status.COUNTED_IN_SLICES: counts or None}
    fields |= reachability.counted(before, {**before, **fields})
    object_ = {**observed.object, "status": {**before, **fields}}
    return msgspec.structs.replace(observed, object=object_), fields


def _counts(part: Mapping[str, Any]) -> dict[str, int]:
    """The counts in the field `metrics` of a slice."""
    counts: dict[str, int] = {}
    for metric in mappings(part.get("metrics")):
        key, value = metric.get("key"), metric.get("value")
        if key in totals.COUNTS and isinstance(value, str) and _DIGITS.match(value):
            counts[str(key)] = int(value)
    return counts


def paced(observed: Observed, plan: Plan, now: datetime) -> Plan:
    """The plan of a fleet without its status, when only numbers and messages have changed so soon
    after the last write.
    """
    if plan.status is None:
        return plan
    state = status.status_of(observed)
    since = mapping(state.get("fleet")).get("updateTime")
    wait_s = lifecycle.pause_left_s(since, _PACE_S, now)
    if wait_s > 0 and _gist(state) == _gist(plan.status):
        timers = Timers().add(wait_s, plan.requeue_after_s)
        return msgspec.structs.replace(plan, status=None, requeue_after_s=timers.next_s)
    fleet = {**plan.status["fleet"], "updateTime": rfc3339(now)}
    return msgspec.structs.replace(plan, status={**plan.status, "fleet": fleet})


def _gist(state: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a user must learn at once."""
    conditions = mappings(state.get("conditions"))
    marks = [tuple(one.get(key) for key in ("type", "status", "reason")) for one in conditions]
    decisions = {key: value for key, value in mapping(state.get("rollout")).items() if value}
    return state.get("observedGeneration"), state.get("phase"), marks, decisions


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
    limit = new_pods((len(msgspec.json.encode(template)),), fleet.pods.values(), now)
    lacking = [node for node in fleet.nodes if node not in fleet.pods][: limit.most]
    gone = dict.fromkeys((*_deletions(surplus), *failed, *_deletions(outdated)))
    new = tuple(pod_of(observed, node, template, revision) for node in lacking)
    steps: tuple[tuple[Action, ...], ...] = (tuple(gone), new)
    return tuple(stage for stage in steps if stage), timers.add(limit.wait_s)


def _deletions(pods: Iterable[Object]) -> Iterable[Delete]:
    return (lifecycle.deletion(pod) for pod in pods if not is_being_deleted(pod))


def _outdated(fleet: Fleet, revision: str) -> list[Object]:
    """The pods of an earlier template that are replaced now. A pod that serves is replaced only
    while few others do not. A silent node gets its new pod when it is back: the worker goes on
    (I11), and a network that comes back does not restart all workers at once.
    """
    annotations = {node: pod["metadata"].get("annotations") for node, pod in fleet.pods.items()}
    old = [node for node, texts in annotations.items() if (texts or {}).get(SPEC_HASH) != revision]
    broken = [node for node in old if fleet.states.get(node) in (FAILED, STARTING)]
    serving = sorted(node for node in old if fleet.states.get(node) == READY)
    room = max(1, len(fleet.nodes) // _SHARE_AT_ONCE) - len(fleet.in_state(FAILED, STARTING))
    return [fleet.pods[node] for node in (*broken, *serving[: max(0, room)])]


def pod_of(observed: Observed, node: NodeName, template: Object, revision: str) -> Create:
    name = worker_name(observed.ref.name, FLEET, node)
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
    pod = children.pod(
        observed, name=slices.key_of(name), role=EDGE, template=located, is_kept=True
    )
    return children.without_token(pod)
