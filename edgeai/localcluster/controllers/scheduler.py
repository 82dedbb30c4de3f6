"""Binds pods to nodes, and deletes pods whose node is gone.

A pod without nodeName gets the first node that its nodeSelector and required node affinity match,
and whose taints it tolerates. Cloud nodes come first. All nodes are this one machine.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from common.logs import get_logger
from edgeai.localcluster.controllers.controller import Controller
from edgeai.localcluster.controllers.events import EventRecorder
from edgeai.localcluster.objects.resources import NODES, PODS, Key, Object
from edgeai.localcluster.objects.resources import key as key_of
from edgeai.localcluster.objects.selectors import is_label_match
from edgeai.localcluster.objects.store import Change, Store
from edgeai.times import Clock, rfc3339, utc_now

log = get_logger(__name__)

CLOUD_LABEL = "node-role.kubernetes.io/cloud"
EDGE_LABEL = "node-role.kubernetes.io/edge"


def choose_node(pod: Object, nodes: Sequence[Object]) -> str | None:
    """The name of a node that fits the pod; None if no node fits. Pure."""
    fitting = [node for node in nodes if not _obstacle(pod["spec"], node)]
    fitting.sort(key=lambda node: (CLOUD_LABEL not in _labels(node), node["metadata"]["name"]))
    return fitting[0]["metadata"]["name"] if fitting else None


def why_unschedulable(pod: Object, nodes: Sequence[Object]) -> str:
    """Why no node fits the pod, in the words of Kubernetes' scheduler. Pure."""
    if not nodes:
        return "no nodes available to schedule pods"
    counts = Counter(_obstacle(pod["spec"], node) for node in nodes)
    reasons = sorted(f"{count} node(s) {reason}" for reason, count in counts.items())
    return f"0/{len(nodes)} nodes are available: {', '.join(reasons)}."


def _obstacle(spec: Object, node: Object) -> str:
    """Why the node does not fit; "" when it does."""
    if node.get("spec", {}).get("unschedulable"):
        return "were unschedulable"
    if not _is_selected(spec, node):
        return "didn't match Pod's node affinity/selector"
    for taint in node.get("spec", {}).get("taints") or []:
        repels = taint.get("effect") in ("NoSchedule", "NoExecute")
        if repels and not any(
            _tolerates(toleration, taint) for toleration in spec.get("tolerations") or []
        ):
            return f"had untolerated taint {{{taint.get('key')}: {taint.get('value') or ''}}}"
    return ""


def _tolerates(toleration: Object, taint: Object) -> bool:
    """Source: Kubernetes' Toleration.ToleratesTaint"""
    effect, key = toleration.get("effect"), toleration.get("key")
    if (effect and effect != taint.get("effect")) or (key and key != taint.get("key")):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def _is_selected(spec: Object, node: Object) -> bool:
    """Whether nodeSelector and the required node affinity match the node."""
    labels = _labels(node)
    selector = spec.get("nodeSelector") or {}
    if any(labels.get(name) != value for name, value in selector.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_is_match(term, node) for term in required.get("nodeSelectorTerms") or [])


def _is_match(term: Object, node: Object) -> bool:
    """As in Kubernetes, a term without expressions matches no node."""
    fields = {"metadata.name": node["metadata"]["name"]}  # Kubernetes knows no other one here
    rules = [*(term.get("matchExpressions") or []), *(term.get("matchFields") or [])]
    return is_label_match({"matchExpressions": rules}, _labels(node) | fields)


def _labels(node: Object) -> dict[str, str]:
    return node["metadata"].get("labels") or {}


class Scheduler(Controller[Key]):
    def __init__(self, store: Store, *, now: Clock = utc_now) -> None:
        super().__init__(store, "scheduler")
        self._now = now
        self._events = EventRecorder(store, component="default-scheduler", now=now)

    def _changed(self, change: Change) -> None:
        if change.resource is PODS and change.type != "DELETED":
            self._add(key_of(change.object))
        elif change.resource is NODES:
            self._add_all()

    def _add_all(self) -> None:
        for pod in self._store.list(PODS).items:
            self._add(key_of(pod))

    async def _reconcile(self, key: Key) -> None:
        pod = self._store.find(PODS, *key)
        if pod is None:
            return
        nodes = self._store.list(NODES).items
        node_name = pod["spec"].get("nodeName")
        if node_name:
            if _is_abandoned(pod, nodes):
                self._store.delete(PODS, *key, uid=pod["metadata"]["uid"], grace_period_s=0)
            return
        if "deletionTimestamp" in pod["metadata"]:
            return
        node = choose_node(pod, nodes)
        if node is None:
            self._report_unschedulable(pod, nodes)
        else:
            self._bind(pod, node)

    def _bind(self, pod: Object, node: str) -> None:
        pod["spec"]["nodeName"] = node
        self._store.update(PODS, pod)
        name = "{namespace}/{name}".format(**pod["metadata"])
        self._events.normal(pod, "Scheduled", f"Successfully assigned {name} to {node}")
        log.info("pod scheduled", pod=name, node=node)

    def _report_unschedulable(self, pod: Object, nodes: Sequence[Object]) -> None:
        message = why_unschedulable(pod, nodes)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
        }
        status = pod.get("status") or {}
        conditions = status.get("conditions") or []
        before: Object = next(
            (entry for entry in conditions if entry["type"] == condition["type"]), {}
        )
        if all(before.get(name) == value for name, value in condition.items()):
            return
        condition["lastTransitionTime"] = rfc3339(self._now())
        others = [entry for entry in conditions if entry is not before]
        pod["status"] = status | {"conditions": [condition, *others]}
        self._store.update(PODS, pod, subresource="status")
        self._events.warning(pod, "FailedScheduling", message)


def _is_abandoned(pod: Object, nodes: Iterable[Object]) -> bool:
    """Whether the pod's node is gone and the pod has run there or is being deleted.

    No kubelet will end such a pod.
    """
    if any(node["metadata"]["name"] == pod["spec"]["nodeName"] for node in nodes):
        return False
    metadata = pod["metadata"]
    if "deletionTimestamp" in metadata:
        return bool(metadata.get("deletionGracePeriodSeconds"))
    return "startTime" in (pod.get("status") or {})
