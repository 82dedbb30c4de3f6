"""Metadata: names, labels, finalizers and owner references, as the API demands them.

Pure; used by `strategy`. Names end up in paths of the kubelet, so nothing looser gets through.
"""

import re
import secrets
from typing import Any

from localcluster import errors
from localcluster.errors import FieldError
from localcluster.resources import NAMESPACES, SERVICES, Object, Resource

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_LABEL_VALUE_RULE = (
    "a valid label value has at most 63 characters, alphanumeric ones, '-', '_' or '.',"
    " and is alphanumeric at both ends"
)
_SET_BY_THE_API = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generateName",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
)


def generated_name(prefix: str) -> str:
    return prefix[:58] + "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))


def updated(current: Object, given: Object) -> Object:
    """Given metadata, with what only the API may set taken from the current one."""
    kept = {field: current[field] for field in _SET_BY_THE_API if field in current}
    return {k: v for k, v in given.items() if k not in _SET_BY_THE_API} | kept


def add_finalizer(metadata: Object, name: str) -> None:
    present = metadata.get("finalizers") or []
    if name not in present:
        metadata["finalizers"] = [*present, name]


def check(resource: Resource, object_: Object) -> None:
    """Raises: errors.Invalid, errors.BadRequest for metadata that nothing could store."""
    metadata = object_["metadata"]
    faults = _check_name(resource, metadata)
    if bool(metadata.get("namespace")) is not resource.namespaced:
        scope = "must name a namespace" if resource.namespaced else "is cluster-scoped"
        raise errors.BadRequest(f"{resource.group_resource}: the object {scope}")
    faults += _check_labels(metadata.get("labels", {}))
    faults += _check_texts("metadata.annotations", metadata.get("annotations", {}))
    finalizers = metadata.get("finalizers", [])
    if not isinstance(finalizers, list) or not all(isinstance(name, str) for name in finalizers):
        faults.append(
            errors.invalid("metadata.finalizers", finalizers, "must be a list of strings")
        )
    faults += _check_owners(metadata.get("ownerReferences", []))
    if faults:
        raise errors.Invalid(resource, str(metadata.get("name", "")), faults)


def _check_name(resource: Resource, metadata: Object) -> list[FieldError]:
    name = metadata.get("name")
    if not name:
        return [errors.required("metadata.name", "name or generateName is required")]
    if not isinstance(name, str):
        return [errors.invalid("metadata.name", name, "must be a string")]
    if resource.group == "rbac.authorization.k8s.io":
        if name in (".", "..") or "/" in name or "%" in name:
            return [errors.invalid("metadata.name", name, "must be usable as a path segment")]
        return []
    if resource in (NAMESPACES, SERVICES):
        fits, limit, what = _LABEL.fullmatch(name), 63, "label"
    else:
        fits, limit, what = _SUBDOMAIN.fullmatch(name), 253, "subdomain"
    if fits and len(name) <= limit:
        return []
    why = (
        f"a lowercase RFC 1123 {what} must consist of lower case alphanumeric characters,"
        f" '-' or '.', start and end with an alphanumeric character, and be at most {limit} long"
    )
    return [errors.invalid("metadata.name", name, why)]


def _check_labels(labels: Any) -> list[FieldError]:
    if faults := _check_texts("metadata.labels", labels):
        return faults
    return [
        errors.invalid("metadata.labels", value, _LABEL_VALUE_RULE)
        for value in labels.values()
        if len(value) > 63 or not _LABEL_VALUE.fullmatch(value)
    ]


def _check_texts(field: str, value: Any) -> list[FieldError]:
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        return []
    return [errors.invalid(field, value, "must be a map of strings to strings")]


def _check_owners(owners: Any) -> list[FieldError]:
    if not isinstance(owners, list):
        return [errors.invalid("metadata.ownerReferences", owners, "must be a list")]
    faults = []
    for index, owner in enumerate(owners):
        faults += [
            errors.required(f"metadata.ownerReferences[{index}].{field}", "must not be empty")
            for field in ("apiVersion", "kind", "name", "uid")
            if not isinstance(owner, dict) or not isinstance(owner.get(field), str)
        ]
    if not faults and sum(1 for owner in owners if owner.get("controller")) > 1:
        why = "only one reference can have controller set to true"
        faults.append(errors.invalid("metadata.ownerReferences", len(owners), why))
    return faults
