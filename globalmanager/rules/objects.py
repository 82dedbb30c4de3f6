"""What every object that the GlobalManager creates carries: labels, owner, hash of its content.

Called by `pods` and `replicas`. The labels are how pods are found; the hash is how a changed
wish is noticed without comparing with what the API server filled in.
"""

import hashlib
import json
from typing import Any, Final

from globalmanager.contract import Create, Object, Observed, ResourceType

LABEL_UID: Final = "edgeai.io/uid"
LABEL_KIND: Final = "edgeai.io/kind"
LABEL_NAME: Final = "edgeai.io/name"
LABEL_ROLE: Final = "edgeai.io/role"
LABEL_WORKER: Final = "edgeai.io/worker"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
SPEC_HASH: Final = "edgeai.io/spec-hash"

_HASH_CHARS: Final = 16


def labels(observed: Observed, role: str) -> dict[str, str]:
    return {
        LABEL_UID: observed.uid,
        LABEL_MANAGED_BY: "edgeai",
        LABEL_KIND: str(observed.type),
        LABEL_NAME: observed.ref.name,
        LABEL_ROLE: role,
    }


def selector(observed: Observed, role: str) -> dict[str, str]:
    """The labels that select a role's pods; immutable in a Deployment, so for ever the same."""
    return {LABEL_UID: observed.uid, LABEL_ROLE: role}


def owner_reference(observed: Observed) -> dict[str, Any]:
    return {
        "apiVersion": observed.type.api_version,
        "kind": observed.type.kind,
        "name": observed.ref.name,
        "uid": observed.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def child(
    observed: Observed, type_: ResourceType, *, name: str, role: str, spec: dict[str, Any]
) -> Create:
    """The wish for one object of the job."""
    marks = labels(observed, role)
    metadata = {
        "name": name,
        "namespace": observed.ref.namespace,
        "labels": marks,
        "annotations": {SPEC_HASH: content_hash([marks, spec])},
        "ownerReferences": [owner_reference(observed)],
    }
    identity = {"apiVersion": type_.api_version, "kind": type_.kind}
    return Create(type_, {**identity, "metadata": metadata, "spec": spec})


def content_hash(content: Any) -> str:
    """16 hex digits; the same for equal JSON, whatever the order of keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARS]


def label_of(object_: Object, label: str) -> str:
    return str((object_["metadata"].get("labels") or {}).get(label, ""))


def has_role(object_: Object, role: str) -> bool:
    return label_of(object_, LABEL_ROLE) == role


def is_being_deleted(object_: Object) -> bool:
    return bool(object_["metadata"].get("deletionTimestamp"))
