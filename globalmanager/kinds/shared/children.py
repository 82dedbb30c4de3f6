"""Compares the children that a job wants with the children that exist.

The update rule of a child's type applies in three cases: the job now wants another child than
before (the spec hash tells), the child was scaled to zero replicas, or somebody changed a field
that belongs to the job. Fields that the API server or an autoscaler has filled in stay as they are.
"""

import base64
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from edgeai.api.objects import SPEC_HASH, controllers, is_being_deleted
from edgeai.api.resources import (
    AUTOSCALERS,
    DEPLOYMENTS,
    PODS,
    SECRETS,
    SERVICES,
    Object,
    ObjectRef,
    ResourceType,
    ref_of,
)
from globalmanager.contract import Action, Adopt, Create, Delete, Observed, Replace, UpdateRule
from globalmanager.kinds.shared import objects, sedna

Stages = tuple[tuple[Action, ...], ...]

# Fields of .spec that the cluster fills in. A replacement without such a field keeps the old value.
_FILLED_IN: Final[dict[ResourceType, tuple[str, ...]]] = {
    DEPLOYMENTS: ("replicas",),
    SERVICES: ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"),
}
_SHARED_FIELDS: Final = ("replicas",)
"""Fields of .spec that a person or an autoscaler may set, as long as one worker is left."""
_IDENTITY: Final = ("apiVersion", "kind", "metadata")
_MOUNTS_TOKEN: Final = "automountServiceAccountToken"


def deployment(
    observed: Observed, *, name: str, role: str, template: Object, autoscaled: bool
) -> Create:
    """A Deployment with one replica, or with the number of replicas that the autoscaler sets.

    The Deployment keeps no old ReplicaSets. Nobody needs them, because the GlobalManager puts an
    earlier template back itself, and those of earlier releases have a worker secret in plain text.
    """
    selector = {"matchLabels": objects.selector(observed, role)}
    # A number here would undo the autoscaler's number with every replacement.
    replicas = {} if autoscaled else {"replicas": 1}
    metadata = template["metadata"]
    # Sedna's labels are on the pods and not in the selector. A selector is immutable, and the
    # Deployments of earlier releases do not have these labels in theirs.
    labels = {**metadata["labels"], **sedna.labels(observed, role)}
    labelled = {**template, "metadata": {**metadata, "labels": labels}}
    spec = {
        **replicas,
        "revisionHistoryLimit": 0,
        "selector": selector,
        "template": labelled,
    }
    return objects.child(observed, DEPLOYMENTS, name=name, role=role, content={"spec": spec})


def service(
    observed: Observed,
    *,
    name: str,
    role: str,
    ports: Mapping[str, int],
    selector: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    headless: bool = False,
) -> Create:
    """A Service for the pods of `role`, or for the pods that `selector` selects.

    Args:
        ports: name -> number, the same in the Service and in its pods
        labels: labels in addition to the labels of every child
        headless: each pod gets a DNS name of its own, also while the pod is not ready
    """
    entries = [
        {"name": port, "port": number, "targetPort": number, "protocol": "TCP"}
        for port, number in ports.items()
    ]
    # A headless Service needs no port. The API server accepts such a Service.
    spec: dict[str, Any] = {"selector": dict(selector or objects.selector(observed, role))}
    spec |= {"ports": entries} if entries else {}
    spec |= {"clusterIP": "None", "publishNotReadyAddresses": True} if headless else {}
    content = {"spec": spec}
    return objects.child(observed, SERVICES, name=name, role=role, content=content, labels=labels)


def pod(
    observed: Observed, *, name: str, role: str, template: Object, is_kept: bool = False
) -> Create:
    """One pod with the given name.

    Args: is_kept: whether the plan never compares the pod with its template (UpdateRule.KEEP). Then
        the pod has no hash of the template, which costs 10 ms for each MB
    """
    source = template["metadata"]
    create = objects.child(
        observed,
        PODS,
        name=name,
        role=role,
        content={"spec": template["spec"]},
        annotations={
            **(source.get("annotations") or {}),
            **({} if is_kept else {SPEC_HASH: objects.content_hash(template)}),
        },
    )
    metadata = create.object["metadata"]
    # Sedna's labels stay out of this hash: an upgrade restarts no worker made without them.
    labels = {**source["labels"], **metadata["labels"]}
    return Create(PODS, {**create.object, "metadata": {**metadata, "labels": labels}})


def without_token(create: Create) -> Create:
    """A worker's Deployment or pod without the volume of a ServiceAccount's token. A template that
    names a ServiceAccount, or sets automountServiceAccountToken, keeps what it says.

    A node that boots without the cloud cannot fill that volume, so no pod with it starts there. The
    hash of the child stays the same: an upgrade restarts no worker that runs with a token.
    """
    child = create.object
    if create.type == DEPLOYMENTS:
        template = child["spec"]["template"]
        spec = {**child["spec"], "template": {**template, "spec": _tokenless(template["spec"])}}
    else:
        spec = _tokenless(child["spec"])
    return Create(create.type, {**child, "spec": spec})


def _tokenless(pod_spec: Object) -> Object:
    has_account = pod_spec.get("serviceAccountName") or pod_spec.get("serviceAccount")
    if has_account or pod_spec.get(_MOUNTS_TOKEN) is not None:
        return pod_spec
    return {**pod_spec, _MOUNTS_TOKEN: False}


def secret(observed: Observed, *, name: str, role: str, values: Mapping[str, str]) -> Create:
    data = {key: base64.b64encode(text.encode()).decode() for key, text in values.items()}
    content = {"type": "Opaque", "data": data}
    return objects.child(observed, SECRETS, name=name, role=role, content=content)


def autoscaler(observed: Observed, *, deployment: str, role: str, limits: dict[str, Any]) -> Create:
    """Of autoscaling/v2. Args: limits: minReplicas, maxReplicas, metrics, behavior"""
    target = {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": DEPLOYMENTS.kind,
        "name": deployment,
    }
    spec = {"scaleTargetRef": target, **limits}
    # Sedna gives its autoscalers this name.
    name = f"hpa-{deployment}"
    return objects.child(observed, AUTOSCALERS, name=name, role=role, content={"spec": spec})


def reconcile(
    observed: Observed,
    desired: Sequence[Create],
    rules: Mapping[ResourceType, UpdateRule],
    *,
    exempt: Collection[ObjectRef] = (),
) -> Stages:
    """Stages that first delete unwanted children, then change one type after the other.

    Children of one type are independent of each other, so they form one stage. A plan does not
    touch a child that is being deleted. When the child is gone, the next plan creates it.

    Args:
        rules: type -> what the plan does with a child that differs from the desired child
        exempt: children that the plan neither creates, replaces nor deletes
    """
    # The order of `desired` is that of the stages: Secrets and Services before pods that name them.
    creates = {ref_of(create.type, create.object): create for create in desired}
    creates = {ref: create for ref, create in creates.items() if ref not in exempt}
    # Else the pod of a finished worker would count as obsolete and go with its logs.
    expected = {*creates, *exempt}
    # Deletions come first, so that new children can have the quota of the obsolete ones.
    obsolete = tuple(
        # The uid spares an object that somebody has created under the name since this snapshot.
        Delete(ref, child["metadata"]["uid"])
        for ref, child in sorted(observed.children.items(), key=lambda item: str(item[0]))
        if ref not in expected and not is_being_deleted(child)
    )
    changes = (
        tuple(_changes(observed, of_type, rules[type_]))
        for type_, of_type in groupby(creates.values(), key=attrgetter("type"))
    )
    return tuple(stage for stage in (obsolete, *changes) if stage)


def new_pods_last(stages: Stages, others: tuple[Action, ...] = ()) -> Stages:
    """The same stages, with the new pods and Services in the last two.

    A quota may refuse a pod, and somebody else may have the name of a Service, for a long time.
    A refused action keeps back only these, and a pod waits for the Service of its name alone.

    Args: others: further actions that may be refused and that nothing waits for
    """
    # Only creations move. A deletion stays in front, because the new pods may need its quota.
    before = (tuple(one for one in stage if not _is_new(one)) for stage in stages)
    creates = [one for stage in stages for one in stage if isinstance(one, Create) and _is_new(one)]
    services = {create.object["metadata"]["name"] for create in creates if create.type == SERVICES}
    last: list[Action] = list(others)
    dependent: list[Action] = []
    for create in creates:
        waits = create.type == PODS and create.object["metadata"]["name"] in services
        (dependent if waits else last).append(create)
    return tuple(stage for stage in (*before, tuple(last), tuple(dependent)) if stage)


def _is_new(action: Action) -> bool:
    return isinstance(action, Create) and action.type in (PODS, SERVICES)


def refused(
    observed: Observed, desired: Sequence[Create], rules: Mapping[ResourceType, UpdateRule]
) -> tuple[ObjectRef, ...]:
    """The children that differ from the desired children, but whose rule forbids a change."""
    creates = {ref_of(create.type, create.object): create for create in desired}
    return tuple(
        ref
        for ref, create in creates.items()
        if rules[ref.type] is UpdateRule.REFUSE
        and (existing := observed.children.get(ref)) is not None
        and not _has_hash_of(existing, create.object)
    )


def is_current(observed: Observed, create: Create) -> bool:
    """Whether the child exists and was made, or last replaced, with this content."""
    existing = observed.children.get(ref_of(create.type, create.object))
    return existing is not None and _has_hash_of(existing, create.object)


def adoptions(observed: Observed) -> tuple[Adopt, ...]:
    """Adopt each scaler that has no controller and is not being deleted."""
    return tuple(
        Adopt(ref, scaler["metadata"]["uid"])
        for ref, scaler in observed.scalers.items()
        # An object has one controller at most, so the API server would refuse a second one.
        if not is_being_deleted(scaler) and not controllers(scaler)
    )


def is_adopted(observed: Observed, scaler: Object) -> bool:
    """Whether the job controls the scaler. An earlier job of the same name does not count."""
    return any(owner["uid"] == observed.uid for owner in controllers(scaler))


def _changes(observed: Observed, creates: Iterator[Create], rule: UpdateRule) -> Iterator[Action]:
    for create in creates:
        existing = observed.children.get(ref_of(create.type, create.object))
        if existing is None:
            yield create
        # The API server refuses a second object of the same name until the finalizers are done.
        elif is_being_deleted(existing):
            continue
        # Most fields of a pod are immutable. The plan after the deletion creates the new pod.
        elif rule is UpdateRule.RECREATE and not _has_hash_of(existing, create.object):
            yield Delete(ref_of(create.type, existing), existing["metadata"]["uid"])
        # A child that is as desired needs no action: nothing changes, so nothing is written.
        elif rule is UpdateRule.REPLACE and not _is_as_desired(existing, create.object):
            yield _replacement(create, existing)


def _is_as_desired(existing: Object, desired: Object) -> bool:
    return (
        _has_hash_of(existing, desired)
        and not _has_too_few(existing, desired)
        # The hash tells what the job changed, the comparison what others changed (decision 0016).
        and not objects.differences(desired, existing, leave=_SHARED_FIELDS)
    )


def _has_too_few(existing: Object, desired: Object) -> bool:
    """Whether a Deployment has fewer replicas than the job needs. When a person or an autoscaler
    has scaled the Deployment up, the higher number stays, so no two writers fight.
    """
    replicas = (desired.get("spec") or {}).get("replicas", 0)
    # A Deployment without the field has one replica. One with zero counts as available in
    # Kubernetes, so a service without any worker would look healthy.
    return bool((existing.get("spec") or {}).get("replicas", 1) < replicas)


def _has_hash_of(existing: Object, desired: Object) -> bool:
    return _spec_hash(existing) == _spec_hash(desired)


def _spec_hash(object_: Object) -> str:
    return str((object_["metadata"].get("annotations") or {}).get(SPEC_HASH, ""))


def _replacement(create: Create, existing: Object) -> Replace:
    """The desired child as `existing`, whose labels and annotations that the job lacks stay."""
    is_drift = _has_hash_of(existing, create.object) and not _has_too_few(existing, create.object)
    old, new = existing["metadata"], create.object["metadata"]
    # Labels and annotations of others stay, as the revision that the Deployment controller keeps.
    # Without them, the two would write in turn.
    # `old` has the observed resourceVersion. The API server answers with a conflict when somebody
    # has changed the child since, and the next plan sees the change.
    metadata = {
        **old,
        "labels": {**(old.get("labels") or {}), **new["labels"]},
        "annotations": {**(old.get("annotations") or {}), **new["annotations"]},
        "ownerReferences": new["ownerReferences"],
    }
    content = {key: value for key, value in create.object.items() if key not in _IDENTITY}
    if "spec" in content:
        spec = existing.get("spec") or {}
        # A Service keeps its address this way, and an autoscaled Deployment its number of pods.
        filled_in = {key: spec[key] for key in _FILLED_IN.get(create.type, ()) if key in spec}
        content["spec"] = {**filled_in, **content["spec"]}
        if is_drift:  # keep the fields that a person or an autoscaler may set
            content["spec"] |= {key: spec[key] for key in _SHARED_FIELDS if key in spec}
    return Replace(create.type, {**existing, "metadata": metadata, **content}, is_drift)
