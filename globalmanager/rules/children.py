"""Desired Deployments, Services, pods and autoscalers against those that exist.

Called by the kinds that run workers. An object is replaced only when what was wished changed (its
spec hash) or it was scaled to none, so whatever the API server or an autoscaler filled in stays. A
pod cannot be replaced in place: the old one is deleted, and once it is gone the new one is created.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from globalmanager.contract import (
    AUTOSCALERS,
    DEPLOYMENTS,
    PODS,
    SERVICES,
    Action,
    Create,
    Delete,
    Object,
    ObjectRef,
    Observed,
    Replace,
    ResourceType,
    ref_of,
)
from globalmanager.rules import objects
from globalmanager.rules.objects import SPEC_HASH, is_being_deleted

# Fields of .spec that the cluster fills in and a replacement must keep when it names none.
_FILLED_IN: Final[dict[ResourceType, tuple[str, ...]]] = {
    DEPLOYMENTS: ("replicas",),
    SERVICES: ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"),
}


def deployment(
    observed: Observed, *, name: str, role: str, template: Object, autoscaled: bool
) -> Create:
    """One replica, or as many as the autoscaler says."""
    selector = {"matchLabels": objects.selector(observed, role)}
    replicas = {} if autoscaled else {"replicas": 1}
    spec = {**replicas, "selector": selector, "template": template}
    return objects.child(observed, DEPLOYMENTS, name=name, role=role, spec=spec)


def service(observed: Observed, *, name: str, role: str, port: int) -> Create:
    """In front of the pods of `role`."""
    ports = [{"name": "tcp", "port": port, "targetPort": port, "protocol": "TCP"}]
    spec = {"selector": objects.selector(observed, role), "ports": ports}
    return objects.child(observed, SERVICES, name=name, role=role, spec=spec)


def pod(observed: Observed, *, name: str, role: str, template: Object) -> Create:
    """One pod under a name of its own."""
    wish = objects.child(observed, PODS, name=name, role=role, spec=template["spec"])
    metadata, given = wish.object["metadata"], template["metadata"]
    annotations = {**(given.get("annotations") or {}), SPEC_HASH: objects.content_hash(template)}
    labels = {**given["labels"], **metadata["labels"]}
    named = {**metadata, "labels": labels, "annotations": annotations}
    return Create(PODS, {**wish.object, "metadata": named})


def autoscaler(observed: Observed, *, deployment: str, role: str, limits: dict[str, Any]) -> Create:
    """`limits`: minReplicas, maxReplicas, metrics, behavior of autoscaling/v2."""
    target = {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": DEPLOYMENTS.kind,
        "name": deployment,
    }
    spec = {"scaleTargetRef": target, **limits}
    return objects.child(observed, AUTOSCALERS, name=f"hpa-{deployment}", role=role, spec=spec)


def reconcile(
    observed: Observed, desired: Sequence[Create], *, settled: Collection[ObjectRef] = ()
) -> tuple[Action, ...]:
    """Deletes what is owned and no longer desired, then creates and replaces in order.

    What is being deleted is left alone: once it is gone, the next plan creates it anew.

    Args: settled: what is neither created, replaced nor deleted, whatever is desired
    """
    wanted = {ref_of(wish.type, wish.object): wish for wish in desired}
    wanted = {ref: wish for ref, wish in wanted.items() if ref not in settled}
    changes = (_change(observed.children.get(ref), wish) for ref, wish in wanted.items())
    kept = {*wanted, *settled}
    obsolete = (_obsolete(ref, child) for ref, child in _by_name(observed) if ref not in kept)
    return tuple(action for action in (*obsolete, *changes) if action is not None)


def _by_name(observed: Observed) -> list[tuple[ObjectRef, Object]]:
    return sorted(observed.children.items(), key=lambda item: str(item[0]))


def _obsolete(ref: ObjectRef, child: Object) -> Delete | None:
    return None if is_being_deleted(child) else Delete(ref, child["metadata"]["uid"])


def _change(existing: Object | None, wish: Create) -> Action | None:
    if existing is None:
        return wish
    if is_being_deleted(existing) or _is_as_wished(existing, wish.object):
        return None
    if wish.type == PODS:
        return _obsolete(ref_of(PODS, existing), existing)
    return Replace(wish.type, _replacement(wish, existing))


def _is_as_wished(existing: Object, wish: Object) -> bool:
    """A Deployment that was scaled to none has lost its worker. One that was scaled up, by hand or
    by an autoscaler that somebody attached, stays: two who write in turn would never settle.
    """
    wanted = wish["spec"].get("replicas", 0)
    has_too_few = (existing.get("spec") or {}).get("replicas", 1) < wanted
    return _spec_hash(existing) == _spec_hash(wish) and not has_too_few


def _spec_hash(object_: Object) -> str:
    return str((object_["metadata"].get("annotations") or {}).get(SPEC_HASH, ""))


def _replacement(wish: Create, existing: Object) -> Object:
    """The wish, with the identity, foreign labels and annotations of what exists."""
    old, new = existing["metadata"], wish.object["metadata"]
    metadata = {
        **old,
        "labels": {**(old.get("labels") or {}), **new["labels"]},
        "annotations": {**(old.get("annotations") or {}), **new["annotations"]},
        "ownerReferences": new["ownerReferences"],
    }
    known = existing.get("spec") or {}
    filled_in = {key: known[key] for key in _FILLED_IN.get(wish.type, ()) if key in known}
    return {**existing, "metadata": metadata, "spec": {**filled_in, **wish.object["spec"]}}
