"""Creates and deletes the pods of Deployments, and writes the status of Deployments.

This cluster has no ReplicaSets: a Deployment owns its pods, and the label pod-template-hash of a
pod names the template of the pod. The functions, which plan the steps, are pure.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime

import msgspec

from common.logs import get_logger
from edgeai import times
from edgeai.localcluster.controllers.controller import Controller
from edgeai.localcluster.controllers.events import EventRecorder
from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.metadata import SUFFIX_ALPHABET
from edgeai.localcluster.objects.pods import is_ended, is_ready
from edgeai.localcluster.objects.resources import DEPLOYMENTS, PODS, Key, Object
from edgeai.localcluster.objects.resources import key as key_of
from edgeai.localcluster.objects.selectors import is_label_match
from edgeai.localcluster.objects.store import Change, Store

log = get_logger(__name__)

HASH_LABEL = "pod-template-hash"
REFUSAL_RETRY_S = 5.0


class Plan(msgspec.Struct, frozen=True):
    create: int = 0
    """Number of pods to create from the current template."""
    delete: tuple[str, ...] = ()
    """Names of pods to delete."""


class _PodsByState(msgspec.Struct, frozen=True):
    new: list[Object]
    """Pods of the current template that have not ended."""
    old: list[Object]
    """Pods of an earlier template that have not ended."""
    deleting: list[Object]
    """Pods that are being deleted."""
    dead: list[Object]
    """Pods that have ended (Succeeded or Failed). The plan replaces these pods."""


def template_hash(deployment: Object) -> str:
    """A hash of the Deployment's pod template, ten characters long."""
    document = msgspec.json.encode(deployment["spec"]["template"], order="sorted")
    digest = hashlib.sha256(document).digest()
    return "".join(SUFFIX_ALPHABET[byte % len(SUFFIX_ALPHABET)] for byte in digest[:10])


SURGE = 1
"""Pods that a rolling update may run beyond the replicas, as in Kubernetes for few replicas."""


def plan(deployment: Object, pods: Sequence[Object]) -> Plan:
    """The next step for a Deployment. An empty plan means that nothing is to be done now.

    A rolling update adds one new pod, waits until this pod is ready, then deletes an old pod. The
    plan ignores maxSurge and maxUnavailable. Recreate waits until all old pods are gone.
    """
    spec = deployment["spec"]
    groups = _sort_pods(deployment, pods)
    replicas = int(spec.get("replicas", 1))
    dead = _names(groups.dead)
    if spec.get("paused"):
        return Plan(delete=dead)
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        step = _recreate(groups, replicas, template_hash(deployment))
    else:
        step = _roll(groups, replicas)
    surplus = _names(_expendable(groups.new)[: max(0, len(groups.new) - replicas)])
    return Plan(step.create, dead + step.delete + surplus)


def _recreate(groups: _PodsByState, replicas: int, hash_: str) -> Plan:
    if groups.old:
        return Plan(delete=_names(groups.old))
    if any(hash_of(pod) != hash_ for pod in groups.deleting):
        return Plan()
    return Plan(create=max(0, replicas - len(groups.new)))


def _roll(groups: _PodsByState, replicas: int) -> Plan:
    room = replicas + SURGE - len(groups.new) - len(groups.old)
    create = max(0, min(replicas - len(groups.new), room))
    ready = sum(is_ready(pod) for pod in groups.new)
    # Each ready new pod replaces one old pod, even if the old pod is ready, too.
    spare = max(0, ready + len(groups.old) - replicas)
    return Plan(create, _names(_expendable(groups.old)[:spare]))


def _sort_pods(deployment: Object, pods: Sequence[Object]) -> _PodsByState:
    hash_ = template_hash(deployment)
    groups = _PodsByState([], [], [], [])
    for pod in pods:
        if "deletionTimestamp" in pod["metadata"]:
            groups.deleting.append(pod)
        elif is_ended(pod):
            groups.dead.append(pod)
        elif hash_of(pod) == hash_:
            groups.new.append(pod)
        else:
            groups.old.append(pod)
    return groups


def _expendable(pods: Sequence[Object]) -> list[Object]:
    """The pods in the order of deletion: pods that are not ready first, then the youngest pods."""
    youngest = sorted(
        pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), reverse=True
    )
    return sorted(youngest, key=is_ready)


def _names(pods: Sequence[Object]) -> tuple[str, ...]:
    return tuple(pod["metadata"]["name"] for pod in pods)


def hash_of(pod: Object) -> str:
    """The hash of the template of the pod's Deployment; "" for a pod of no Deployment."""
    return str((pod["metadata"].get("labels") or {}).get(HASH_LABEL, ""))


def new_pod(deployment: Object) -> Object:
    metadata, template = deployment["metadata"], deployment["spec"]["template"]
    base = template.get("metadata") or {}
    hash_ = template_hash(deployment)
    return {
        "metadata": {
            "generateName": f"{metadata['name']}-{hash_}-",
            "namespace": metadata["namespace"],
            "labels": (base.get("labels") or {}) | {HASH_LABEL: hash_},
            "annotations": base.get("annotations") or {},
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": template["spec"],
    }


def deployment_status(
    deployment: Object, pods: Sequence[Object], now: datetime, *, refusal: str = ""
) -> Object:
    """As Kubernetes writes it. Unchanged conditions keep their time.

    Args: refusal: why the API has refused a pod of the Deployment
    """
    before = deployment.get("status") or {}
    groups = _sort_pods(deployment, pods)
    alive = groups.new + groups.old
    ready = sum(is_ready(pod) for pod in alive)
    replicas = int(deployment["spec"].get("replicas", 1))
    counts = {
        "replicas": len(alive),
        "updatedReplicas": len(groups.new),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": max(0, replicas - ready),
    }
    old = {condition["type"]: condition for condition in before.get("conditions") or []}
    words = ("Available", "has") if ready >= replicas else ("Unavailable", "does not have")
    message = f"Deployment {words[1]} minimum availability."
    reason = f"MinimumReplicas{words[0]}"
    conditions = [_condition("Available", reason, message, str(ready >= replicas))]
    if refusal:
        # While refusals continue, the first message stays: each message names another pod.
        message = old.get("ReplicaFailure", {}).get("message", refusal)
        conditions.append(_condition("ReplicaFailure", "FailedCreate", message))
    return {
        "observedGeneration": deployment["metadata"]["generation"],
        **{name: count for name, count in counts.items() if count},
        "conditions": [
            _dated(condition, old.get(condition["type"]), now) for condition in conditions
        ],
    }


def _condition(type_: str, reason: str, message: str, status: str = "True") -> Object:
    return {"type": type_, "status": status, "reason": reason, "message": message}


def _dated(condition: Object, old: Object | None, now: datetime) -> Object:
    if old and all(old.get(name) == value for name, value in condition.items()):
        return old
    stamp = times.rfc3339(now)
    is_turn = old is None or old["status"] != condition["status"]
    turn = stamp if old is None or is_turn else old["lastTransitionTime"]
    return condition | {"lastUpdateTime": stamp, "lastTransitionTime": turn}


def is_matched(deployment: Object, pod: Object) -> bool:
    """Whether a pod has a template hash, and labels that match the Deployment's selector.

    Raises: errors.BadRequest for a malformed selector
    """
    labels = pod["metadata"].get("labels") or {}
    return bool(hash_of(pod)) and is_label_match(deployment["spec"]["selector"], labels)


def owner_reference(deployment: Object) -> Object:
    return {
        "apiVersion": DEPLOYMENTS.group_version,
        "kind": DEPLOYMENTS.kind,
        "name": deployment["metadata"]["name"],
        "uid": deployment["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


class DeploymentController(Controller[Key]):
    def __init__(self, store: Store, *, now: times.Clock = times.utc_now) -> None:
        super().__init__(store, "deployments")
        self._now = now
        self._events = EventRecorder(store, component="deployment-controller", now=now)

    def _add_all(self, namespace: str = "") -> None:
        for deployment in self._store.list(DEPLOYMENTS, namespace=namespace).items:
            self._add(key_of(deployment))

    def _changed(self, change: Change) -> None:
        if change.resource is DEPLOYMENTS:
            self._add(key_of(change.object))
        elif change.resource is PODS:
            namespace = change.object["metadata"]["namespace"]
            if owner := _controller(change.object):
                self._add((namespace, owner["name"]))
            elif hash_of(change.object) and change.type != "DELETED":
                self._add_all(namespace)  # a Deployment may adopt the pod

    async def _reconcile(self, key: Key) -> float | None:
        deployment = self._store.find(DEPLOYMENTS, *key)
        if deployment is None or "deletionTimestamp" in deployment["metadata"]:
            return None
        self._claim(deployment)
        step = plan(deployment, self._pods(deployment))
        refusal = self._carry_out(deployment, step)
        self._write_status(deployment, refusal)
        return REFUSAL_RETRY_S if refusal else None

    def _claim(self, deployment: Object) -> None:
        """Release pods whose labels no longer match, and adopt matching pods without a controller.

        Source: Kubernetes' ReplicaSet controller.
        """
        uid, namespace = deployment["metadata"]["uid"], deployment["metadata"]["namespace"]
        for pod in self._store.list(PODS, namespace=namespace).items:
            owner = _controller(pod)
            is_own = owner is not None and owner["uid"] == uid
            if is_own == is_matched(deployment, pod) or "deletionTimestamp" in pod["metadata"]:
                continue
            owners = pod["metadata"].get("ownerReferences") or []
            if is_own:
                owners = [other for other in owners if other["uid"] != uid]
            elif owner is None and not is_ended(pod):
                owners = [*owners, owner_reference(deployment)]
            else:
                continue
            pod["metadata"]["ownerReferences"] = owners
            self._store.update(PODS, pod)
            action = "pod released" if is_own else "pod adopted"
            log.info(action, pod=pod["metadata"]["name"], deployment=deployment["metadata"]["name"])

    def _pods(self, deployment: Object) -> list[Object]:
        uid = deployment["metadata"]["uid"]
        pods = self._store.list(PODS, namespace=deployment["metadata"]["namespace"]).items
        return [pod for pod in pods if (owner := _controller(pod)) and owner["uid"] == uid]

    def _carry_out(self, deployment: Object, step: Plan) -> str:
        """Returns: why the API refused a pod; "" when it did not"""
        namespace = deployment["metadata"]["namespace"]
        for name in step.delete:
            self._store.delete(PODS, namespace, name)
            self._events.normal(deployment, "SuccessfulDelete", f"Deleted pod: {name}")
        for _ in range(step.create):
            try:
                pod = self._store.create(PODS, new_pod(deployment))
            except errors.Forbidden as error:
                self._events.warning(deployment, "FailedCreate", f"Error creating: {error.message}")
                return error.message
            name = pod["metadata"]["name"]
            self._events.normal(deployment, "SuccessfulCreate", f"Created pod: {name}")
            log.info("pod created", deployment=deployment["metadata"]["name"], pod=name)
        return ""

    def _write_status(self, deployment: Object, refusal: str) -> None:
        pods = self._pods(deployment)
        status = deployment_status(deployment, pods, self._now(), refusal=refusal)
        if status != deployment.get("status"):
            names = {name: deployment["metadata"][name] for name in ("namespace", "name", "uid")}
            update = {"metadata": names, "status": status}
            self._store.update(DEPLOYMENTS, update, subresource="status")


def _controller(pod: Object) -> Object | None:
    """The pod's ownerReference with `controller: true`, which names a Deployment; else None."""
    for owner in pod["metadata"].get("ownerReferences") or []:
        if owner.get("controller"):
            return dict(owner)
    return None
