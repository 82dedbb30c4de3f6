"""The metadata of every object that the GlobalManager creates: labels, owner, hash of the content.

The labels tell users and Services which job owns an object. The hash tells whether the job wants
another content than before. Fields that the API server has filled in do not change the hash.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from edgeai.api.objects import (
    LABEL_KIND,
    LABEL_MANAGED_BY,
    LABEL_NAME,
    LABEL_ROLE,
    MANAGER,
    SPEC_HASH,
)
from edgeai.api.resources import Object, ResourceType
from edgeai.labels import LABEL_UID
from globalmanager.contract import Create, Observed
from globalmanager.kinds.shared import sedna
from globalmanager.kinds.shared.quantities import are_equal

_HASH_CHARS: Final = 16


def job_labels(observed: Observed, role: str) -> dict[str, str]:
    return {
        LABEL_UID: observed.uid,
        LABEL_MANAGED_BY: MANAGER,
        LABEL_KIND: str(observed.type),
        LABEL_NAME: observed.ref.name,
        LABEL_ROLE: role,
    }


def selector(observed: Observed, role: str) -> dict[str, str]:
    """The labels that select a role's pods, immutable as the selector of a Deployment."""
    # By the uid: by the name, a job that is made again would select pods of the former one.
    return {LABEL_UID: observed.uid, LABEL_ROLE: role}


def owner_reference(observed: Observed) -> dict[str, Any]:
    # The garbage collector deletes a child when its owner is gone, so no child outlives its job.
    # Labels prove nothing: anybody who may create pods can copy them.
    return {
        "apiVersion": observed.type.api_version,
        "kind": observed.type.kind,
        "name": observed.ref.name,
        "uid": observed.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def child(
    observed: Observed,
    type_: ResourceType,
    *,
    name: str,
    role: str,
    content: Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Create:
    """One child as the job wants it.

    Args:
        content: all fields but identity and metadata: {"spec": …}, {"data": …}, {"rules": …}
        labels: labels in addition to the labels of every child
        annotations: all annotations of the child; None: only the hash of labels and content
    """
    marks = {**job_labels(observed, role), **sedna.labels(observed, role), **(labels or {})}
    if annotations is None:
        # Earlier releases hashed only labels and spec. An upgrade must replace no child.
        hashed = content["spec"] if content.keys() == {"spec"} else content
        annotations = {SPEC_HASH: content_hash([marks, hashed])}
    metadata = {
        # No generateName: a retry after a lost answer meets the child of the first try.
        "name": name,
        "namespace": observed.ref.namespace,
        "labels": marks,
        **({"annotations": dict(annotations)} if annotations else {}),
        "ownerReferences": [owner_reference(observed)],
    }
    identity = {"apiVersion": type_.api_version, "kind": type_.kind}
    return Create(type_, {**identity, "metadata": metadata, **content})


def content_hash(content: Any) -> str:
    """16 hex digits. The order of keys in the JSON does not change the hash."""
    # The hashes of all releases are made of this text; another would replace every child.
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARS]


# ---- drift --------------------------------------------------------------------------------------

_METADATA: Final = ("labels", "annotations")
"""The fields of .metadata that belong to the job. The API server owns the other fields."""


def differences(
    desired: Object, existing: Object, *, leave: Collection[str] = ()
) -> dict[str, Any]:
    """Where `existing` differs from what the job wants: path -> existing value.

    Fields that `desired` does not have are ignored. An empty value equals a missing field, because
    the API server drops empty values. A quantity equals the same quantity in another notation.

    Args: leave: fields of .spec that a person or another controller may set
    """
    parts = {key: value for key, value in desired.items() if key not in ("apiVersion", "kind")}
    metadata, spec = parts.pop("metadata", {}), parts.pop("spec", None)
    parts["metadata"] = {field: metadata[field] for field in _METADATA if field in metadata}
    if spec is not None:
        parts["spec"] = {field: value for field, value in spec.items() if field not in leave}
    pairs = (_differences(value, existing.get(key), key) for key, value in parts.items())
    return {path: current for entries in pairs for path, current in entries}


def _differences(desired: Any, current: Any, path: str) -> Iterator[tuple[str, Any]]:
    if desired == current:  # most children are as the job wants them, and this comparison is fast
        return
    if isinstance(desired, Mapping) and isinstance(current, Mapping):
        for key, value in desired.items():
            yield from _differences(value, current.get(key), f"{path}.{key}")
    # Lists of another length differ as a whole, since an index would pair unrelated entries.
    elif isinstance(desired, list) and isinstance(current, list) and len(desired) == len(current):
        for index, (one, other) in enumerate(zip(desired, current, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif (desired or current) and not are_equal(path, desired, current):
        yield path, current
