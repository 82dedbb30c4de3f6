"""Validation of metadata: names, labels, finalizers and owner references.

Pure. The kubelet uses names as parts of paths. So these checks are the same as in Kubernetes.
"""

import re
import secrets
from typing import Any

import msgspec

from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.errors import FieldError
from edgeai.localcluster.objects.resources import (
    CUSTOMRESOURCEDEFINITIONS,
    NAMESPACES,
    SERVICES,
    Object,
    Resource,
)

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_LABEL_VALUE_RULE = (
    "a valid label value has at most 63 characters, alphanumeric ones, '-', '_' or '.',"
    " and is alphanumeric at both ends"
)
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
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


def updated(old: Object, new: Object) -> Object:
    """The given metadata, with the values of `old` in the fields that only the API sets."""
    own = {field: old[field] for field in _SET_BY_THE_API if field in old}
    return {k: v for k, v in new.items() if k not in _SET_BY_THE_API} | own


def add_finalizer(metadata: Object, name: str) -> None:
    present = metadata.get("finalizers") or []
    if name not in present:
        metadata["finalizers"] = [*present, name]


def check(resource: Resource, object_: Object) -> None:
    """Check the metadata of an object.

    Raises: errors.BadRequest for values of a wrong type; errors.Invalid for other faults
    """
    metadata = object_["metadata"]
    for field, form, type_ in _FORMS:
        if field in metadata and not _is_of_type(metadata[field], type_):
            version = f'{resource.kind} in version "{resource.version}"'
            raise errors.BadRequest(
                f"{version} cannot be handled as a {resource.kind}: metadata.{field} must be {form}"
            )
    faults = _check_name(resource, metadata)
    if bool(metadata.get("namespace")) is not resource.namespaced:
        scope = "must name a namespace" if resource.namespaced else "is cluster-scoped"
        raise errors.BadRequest(f"{resource.group_resource}: the object {scope}")
    faults += _check_labels(metadata.get("labels", {}))
    faults += _check_keys("metadata.annotations", metadata.get("annotations", {}))
    faults += _check_finalizers(resource, metadata.get("finalizers", []))
    faults += _check_owners(metadata.get("ownerReferences", []))
    if faults:
        raise errors.Invalid(resource, str(metadata.get("name", "")), faults)


def _is_of_type(value: Any, type_: Any) -> bool:
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return False
    return True


_OWNER_FIELDS = {"apiVersion": "version", "kind": "kind", "name": "name", "uid": "uid"}
"""Field of an ownerReference -> the field's name in messages."""


class _Owner(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""


_FORMS: tuple[tuple[str, str, Any], ...] = (
    ("name", "a string", str),
    ("generateName", "a string", str),
    ("labels", "a map of strings to strings", dict[str, str]),
    ("annotations", "a map of strings to strings", dict[str, str]),
    ("finalizers", "a list of strings", list[str]),
    ("ownerReferences", "a list of references", list[_Owner]),
)


def _check_name(resource: Resource, metadata: Object) -> list[FieldError]:
    name = metadata.get("name")
    if not name:
        return [errors.required("metadata.name", "name or generateName is required")]
    if resource.group == "rbac.authorization.k8s.io":
        if name in (".", "..") or "/" in name or "%" in name:
            return [errors.invalid("metadata.name", name, "must be usable as a path segment")]
        return []
    if resource is SERVICES:
        return _check_service_name(name)
    if resource is NAMESPACES:
        fits, limit, noun = _LABEL.fullmatch(name), 63, "label"
    else:
        fits, limit, noun = _SUBDOMAIN.fullmatch(name), 253, "subdomain"
    if fits and len(name) <= limit:
        return []
    why = (
        f"a lowercase RFC 1123 {noun} must consist of lower case alphanumeric characters,"
        f" '-' or '.', start and end with an alphanumeric character, and be at most {limit} long"
    )
    return [errors.invalid("metadata.name", name, why)]


def _check_service_name(name: str) -> list[FieldError]:
    if _SERVICE_NAME.fullmatch(name) and len(name) <= 63:
        return []
    why = (
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
        " alphabetic character, end with an alphanumeric character, and be at most 63 long"
    )
    return [errors.invalid("metadata.name", name, why)]


def _check_labels(labels: dict[str, str]) -> list[FieldError]:
    return _check_keys("metadata.labels", labels) + [
        errors.invalid("metadata.labels", value, _LABEL_VALUE_RULE)
        for value in labels.values()
        if len(value) > 63 or not _LABEL_VALUE.fullmatch(value)
    ]


def _check_keys(field: str, texts: dict[str, str]) -> list[FieldError]:
    return [errors.invalid(field, key, why) for key in texts if (why := _name_fault(key))]


def _name_fault(name: str) -> str:
    """Why a key or a finalizer is no qualified name; "" for a qualified name."""
    prefix, slash, part = name.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return "prefix part must be a lowercase RFC 1123 subdomain"
    if not part or len(part) > 63 or not _LABEL_VALUE.fullmatch(part):
        return (
            "name part must consist of alphanumeric characters, '-', '_' or '.', begin and end"
            " with an alphanumeric character, and be at most 63 long"
        )
    return ""


def _check_finalizers(resource: Resource, names: list[str]) -> list[FieldError]:
    """Check that each finalizer is a qualified name.

    In built-in kinds except CRDs, a name without "/" must be a standard finalizer of Kubernetes.
    """
    is_free = resource.custom or resource is CUSTOMRESOURCEDEFINITIONS
    faults = [
        errors.invalid("metadata.finalizers", name, why)
        for name in names
        if (why := _name_fault(name))
    ]
    why = "name is neither a standard finalizer name nor is it fully qualified"
    return faults or [
        errors.invalid(f"metadata.finalizers[{index}]", name, why)
        for index, name in enumerate(names)
        if not (is_free or "/" in name or name in _STANDARD_FINALIZERS)
    ]


def _check_owners(owners: list[Object]) -> list[FieldError]:
    faults = [
        errors.invalid(f"metadata.ownerReferences.{field}", "", f"{called} must not be empty")
        for owner in owners
        for field, called in _OWNER_FIELDS.items()
        if not owner.get(field)
    ]
    if sum(1 for owner in owners if owner.get("controller")) > 1:
        why = "only one reference can have controller set to true"
        faults.append(errors.invalid("metadata.ownerReferences", len(owners), why))
    return faults
