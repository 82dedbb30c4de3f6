"""Validation of metadata: names, labels, finalizers and owner references.

Pure. The kubelet uses names as parts of paths. So these checks are the same as in Kubernetes.
"""

import re
import secrets
from collections.abc import Iterable

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

# Kubernetes uses these characters, too. A name without vowels, 0, 1 and 3 spells no word.
SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SERVICE_NAME_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, end with an alphanumeric character, and be at most 63 long"
)
_NAME_RULE = (
    "a lowercase RFC 1123 {} must consist of lower case alphanumeric characters,"
    " '-' or '.', start and end with an alphanumeric character, and be at most {} long"
)
_PATH_SEGMENT = re.compile(r"(?!\.\.?\Z)[^/%]+")
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
    return prefix[:58] + "".join(secrets.choice(SUFFIX_ALPHABET) for _ in range(5))


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
    try:
        typed = msgspec.convert(metadata, _Metadata)
    except msgspec.ValidationError as error:
        raise errors.undecodable(resource, f"metadata: {error}") from error
    faults = _check_name(resource, metadata)
    if bool(metadata.get("namespace")) is not resource.namespaced:
        scope = "must name a namespace" if resource.namespaced else "is cluster-scoped"
        raise errors.BadRequest(f"{resource.group_resource}: the object {scope}")
    faults += _check_labels(typed.labels)
    faults += _check_keys("metadata.annotations", typed.annotations)
    faults += _check_finalizers(resource, typed.finalizers)
    faults += _check_owners(typed.owner_references)
    if faults:
        raise errors.Invalid(resource, typed.name, faults)


class _Owner(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    generate_name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[_Owner] = []


def _check_name(resource: Resource, metadata: Object) -> list[FieldError]:
    name = metadata.get("name")
    if not name:
        return [errors.required("metadata.name", "name or generateName is required")]
    if resource.group == "rbac.authorization.k8s.io":
        pattern, longest, rule = _PATH_SEGMENT, len(name), "must be usable as a path segment"
    elif resource is SERVICES:
        pattern, longest, rule = _SERVICE_NAME, 63, _SERVICE_NAME_RULE
    elif resource is NAMESPACES:
        pattern, longest, rule = _LABEL, 63, _NAME_RULE.format("label", 63)
    else:
        pattern, longest, rule = _SUBDOMAIN, 253, _NAME_RULE.format("subdomain", 253)
    if pattern.fullmatch(name) and len(name) <= longest:
        return []
    return [errors.invalid("metadata.name", name, rule)]


def _check_labels(labels: dict[str, str]) -> list[FieldError]:
    return _check_keys("metadata.labels", labels) + [
        errors.invalid("metadata.labels", value, _LABEL_VALUE_RULE)
        for value in labels.values()
        if len(value) > 63 or not _LABEL_VALUE.fullmatch(value)
    ]


def _check_keys(field: str, texts: Iterable[str]) -> list[FieldError]:
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
    faults = _check_keys("metadata.finalizers", names)
    why = "name is neither a standard finalizer name nor is it fully qualified"
    return faults or [
        errors.invalid(f"metadata.finalizers[{index}]", name, why)
        for index, name in enumerate(names)
        if not (is_free or "/" in name or name in _STANDARD_FINALIZERS)
    ]


def _check_owners(owners: list[_Owner]) -> list[FieldError]:
    faults = [
        errors.invalid(f"metadata.ownerReferences.{field}", "", f"{field} must not be empty")
        for owner in owners
        for field, text in msgspec.to_builtins(owner).items()
        if text == ""
    ]
    if sum(1 for owner in owners if owner.controller) > 1:
        why = "only one reference can have controller set to true"
        faults.append(errors.invalid("metadata.ownerReferences", len(owners), why))
    return faults
