"""Computes the object to store when a client creates, replaces or deletes an object.

Pure: the result depends on the old object, the new object and the time. The module has the rules
for metadata (uid, generation, finalizers, deletion) and /status; others have those for content.
"""

import uuid
from datetime import datetime, timedelta
from typing import Any

from edgeai import times
from edgeai.localcluster.objects import builtin_kinds, crds, errors, schemas
from edgeai.localcluster.objects.builtin_kinds import DEFAULT_GRACE_S
from edgeai.localcluster.objects.errors import FieldError
from edgeai.localcluster.objects.metadata import add_finalizer, generated_name
from edgeai.localcluster.objects.metadata import check as check_metadata
from edgeai.localcluster.objects.metadata import updated as updated_metadata
from edgeai.localcluster.objects.resources import (
    CUSTOMRESOURCEDEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
    Object,
    Resource,
)

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
FINALIZE = "finalize"  # the subresource that removes a namespace's finalizer
PROPAGATION_FINALIZERS = {"Background": "", "Foreground": FOREGROUND, "Orphan": ORPHAN}

_NO_VERSION = FieldError(
    "metadata.resourceVersion",
    "FieldValueInvalid",
    "Invalid value: 0x0: must be specified for an update",
)
_STATUS_AT_CREATION = (NODES,)  # the cluster creates its Nodes with a status


def prepare_create(resource: Resource, object_: Object, now: datetime) -> Object:
    """The new object to store, without its resource version.

    Raises: errors.BadRequest, errors.Invalid
    """
    new = _identified(resource, object_)
    metadata = new["metadata"]
    if metadata.get("resourceVersion"):
        raise errors.BadRequest("resourceVersion should not be set on objects to be created")
    if not metadata.get("name") and isinstance(metadata.get("generateName"), str):
        metadata["name"] = generated_name(metadata["generateName"])
    check_metadata(resource, new)
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        metadata.pop(field, None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = times.rfc3339(now)
    metadata.pop("generation", None)
    if resource.has_generation:
        metadata["generation"] = 1
    if resource.status and resource not in _STATUS_AT_CREATION:
        new.pop("status", None)
    new = _defaulted_and_checked(resource, new)
    _stamp(resource, new, now)
    return new


def prepare_update(
    resource: Resource,
    old: Object,
    object_: Object,
    subresource: str,
    now: datetime,
) -> Object:
    """The object that replaces `old`; equal to `old` when nothing changes.

    Raises: errors.BadRequest, errors.Conflict, errors.Invalid
    """
    updated = _identified(resource, object_)
    metadata = updated["metadata"]
    name = old["metadata"]["name"]
    version = metadata.get("resourceVersion") or ""
    if not version and not resource.allows_unconditional_update:
        raise errors.Invalid(resource, name, [_NO_VERSION])
    check_preconditions(resource, old, metadata.get("uid") or "", version)
    if subresource == "status":
        updated = {**old, "status": updated.get("status")}
        if updated["status"] is None:
            del updated["status"]
        return _defaulted_and_checked(resource, updated, old=old)
    updated["metadata"] = updated_metadata(old["metadata"], metadata)
    if resource.status:
        updated.pop("status", None)
        if "status" in old:
            updated["status"] = old["status"]
    builtin_kinds.keep_allocations(resource, old, updated)
    if resource is NAMESPACES and subresource != FINALIZE:
        updated["spec"] = old["spec"]
    check_metadata(resource, updated)
    updated = _defaulted_and_checked(resource, updated, old=old)
    if faults := _check_change(resource, old, updated):
        raise errors.Invalid(resource, name, faults)
    if resource is CUSTOMRESOURCEDEFINITIONS:
        updated["status"] = crds.status(updated, now)
    if _content(resource, updated) != _content(resource, old):
        _count_change(resource, updated["metadata"])
    return updated


def as_update(resource: Resource, old: Object, patched: Object, subresource: str) -> Object:
    """The patched object in a form that `prepare_update` takes.

    An update with another uid is a conflict (409). A patch with another uid is invalid (422),
    because a patch must not change the uid; a custom resource's status ignores another one.

    Raises: errors.Invalid
    """
    metadata = patched.get("metadata")
    uid = old["metadata"]["uid"]
    if not isinstance(metadata, dict) or metadata.get("uid") in (None, uid):
        return patched
    if resource.custom and subresource == "status":
        return {**patched, "metadata": {**metadata, "uid": uid}}
    fault = errors.invalid("metadata.uid", metadata["uid"], "field is immutable")
    raise errors.Invalid(resource, old["metadata"]["name"], [fault])


def prepare_delete(
    resource: Resource,
    old: Object,
    propagation: str,
    grace_period_s: int | None,
    now: datetime,
) -> Object:
    """The object after a delete request: with timestamp, grace period and finalizers.

    The caller then asks `is_released`. If the answer is True, the caller removes the object now. If
    the answer is False, the caller stores it: it waits for finalizers or for the grace period.

    Raises: errors.Invalid for an unknown propagation policy
    """
    if propagation not in PROPAGATION_FINALIZERS:
        policies = tuple(PROPAGATION_FINALIZERS)
        fault = errors.unsupported("propagationPolicy", propagation, policies)
        raise errors.invalid_options("Delete", fault)
    metadata = dict(old["metadata"])
    new = {**old, "metadata": metadata}
    grace_s = _grace_period_s(resource, old, grace_period_s)
    is_first = "deletionTimestamp" not in metadata
    if is_first:
        _count_change(resource, metadata)
        _propagate(metadata, PROPAGATION_FINALIZERS[propagation])
    if is_first or grace_s < metadata.get("deletionGracePeriodSeconds", 0):
        metadata["deletionTimestamp"] = times.rfc3339(now + timedelta(seconds=grace_s))
        metadata["deletionGracePeriodSeconds"] = grace_s
    if resource is NAMESPACES:
        new["status"] = {**old.get("status", {}), "phase": "Terminating"}
    return new


def is_released(resource: Resource, object_: Object) -> bool:
    """Whether an object is being deleted and has neither a grace period nor a finalizer."""
    metadata = object_["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("deletionGracePeriodSeconds"):
        return False
    if resource is NAMESPACES and object_.get("spec", {}).get("finalizers"):
        return False
    return not metadata.get("finalizers")


def check_preconditions(resource: Resource, old: Object, uid: str, resource_version: str) -> None:
    """Check the uid and the resource version that a request names. "" matches any object.

    Raises: errors.Conflict when `old` has another uid or resource version
    """
    metadata = old["metadata"]
    if uid and uid != metadata["uid"]:
        why = f"the uid in the precondition is {uid}, that of the object {metadata['uid']}"
        raise errors.Conflict(resource, metadata["name"], why)
    if resource_version and resource_version != metadata["resourceVersion"]:
        why = (
            "the object has been modified;"
            " please apply your changes to the latest version and try again"
        )
        raise errors.Conflict(resource, metadata["name"], why)


def _identified(resource: Resource, object_: Any) -> Object:
    """A shallow copy of an object, with the apiVersion and the kind of the resource.

    Raises: errors.BadRequest when the object is no map or has another apiVersion or kind
    """
    if not isinstance(object_, dict) or not isinstance(object_.get("metadata", {}), dict):
        raise errors.BadRequest("the body must be an object with metadata")
    api_version = object_.get("apiVersion") or resource.group_version
    kind = object_.get("kind") or resource.kind
    if (api_version, kind) != (resource.group_version, resource.kind):
        raise errors.BadRequest(
            f"the data is of {api_version} {kind},"
            f" which is not the expected {resource.group_version} {resource.kind}"
        )
    metadata = {k: v for k, v in object_.get("metadata", {}).items() if v is not None}
    metadata.pop("managedFields", None)
    metadata.pop("selfLink", None)
    head = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    return head | {k: v for k, v in object_.items() if k not in head}


def _defaulted_and_checked(
    resource: Resource,
    object_: Object,
    *,
    old: Object | None = None,
) -> Object:
    """A pruned and defaulted copy of an object, after all checks.

    Args:
        old: the stored object. The new object may keep the faults of the stored object.
            Otherwise a CRD that became stricter would block writes of the status and the end
            of a deletion.
    Raises: errors.Invalid, errors.BadRequest
    """
    try:
        if resource.schema is None:
            object_ = builtin_kinds.with_defaults(resource, object_)
        else:
            pruned, _ = schemas.prune(resource.schema, object_, root=True)
            object_ = schemas.default(resource.schema, pruned)
        faults = _check(resource, object_)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # A built-in object is not decoded into types. A value of a wrong type is found only here.
        raise errors.undecodable(resource, error) from error
    if faults and old:
        known_faults = _check(resource, old)
        faults = [fault for fault in faults if fault not in known_faults]
    if faults:
        raise errors.Invalid(resource, object_["metadata"]["name"], faults)
    if resource is CUSTOMRESOURCEDEFINITIONS:
        return {**object_, "spec": crds.with_defaults(object_["spec"])}
    return object_


def _check(resource: Resource, object_: Object) -> list[FieldError]:
    if resource is CUSTOMRESOURCEDEFINITIONS:
        return crds.check(object_)
    if resource.schema is None:
        return builtin_kinds.check(resource, object_)
    properties = dict(resource.schema.get("properties") or {})
    properties.pop("metadata", None)  # because `metadata.check` checks metadata
    return schemas.validate({**resource.schema, "properties": properties}, object_)


def _stamp(resource: Resource, new: Object, now: datetime) -> None:
    """Set the fields that the API writes into new objects of some built-in kinds."""
    if resource is NAMESPACES:
        new["spec"] = {"finalizers": ["kubernetes"]}
        new["status"] = {"phase": "Active"}
    elif resource is PODS:
        new["status"] = {"phase": "Pending"}
    elif resource is CUSTOMRESOURCEDEFINITIONS:
        new["status"] = crds.status(new, now)
        add_finalizer(new["metadata"], crds.CLEANUP_FINALIZER)


def _propagate(metadata: Object, finalizer: str) -> None:
    """Set the finalizer of a propagation policy. It replaces an earlier policy's finalizer."""
    if not finalizer:
        return
    present = metadata.get("finalizers") or []
    metadata["finalizers"] = [name for name in present if name not in (FOREGROUND, ORPHAN)]
    add_finalizer(metadata, finalizer)


def _count_change(resource: Resource, metadata: Object) -> None:
    if resource.has_generation:
        metadata["generation"] = metadata.get("generation", 0) + 1


def _content(resource: Resource, object_: Object) -> Object:
    """The part of an object whose changes increase metadata.generation."""
    apart = ("metadata", "status") if resource.status else ("metadata",)
    return {name: value for name, value in object_.items() if name not in apart}


def _grace_period_s(resource: Resource, pod: Object, asked_s: int | None) -> int:
    """The grace period of a pod on a node, in seconds; 0 for other objects.

    A negative grace period counts as 1 second.

    Source: Kubernetes since 1.22, whose API accepts negative numbers, too.
    """
    if resource is not PODS or not pod["spec"].get("nodeName"):
        return 0
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed") and asked_s is None:
        return 0
    period_s = pod["spec"].get("terminationGracePeriodSeconds") if asked_s is None else asked_s
    grace_s = period_s if isinstance(period_s, int) else DEFAULT_GRACE_S
    return grace_s if grace_s >= 0 else 1


def _check_change(resource: Resource, old_object: Object, updated: Object) -> list[FieldError]:
    old, new = old_object["metadata"], updated["metadata"]
    faults = builtin_kinds.check_change(resource, old_object, updated)
    if "deletionTimestamp" in old:
        additions = set(new.get("finalizers") or ()) - set(old.get("finalizers") or ())
        if additions:
            why = "no new finalizers can be added if the object is being deleted"
            faults.append(errors.forbidden("metadata.finalizers", f"{why}: {sorted(additions)}"))
    return faults
