"""Labels of objects that the GlobalManager creates, and readers of any object's metadata."""

from collections.abc import Mapping
from typing import Any, Final

from edgeai.api.resources import Object

LABEL_KIND: Final = "edgeai.io/kind"
LABEL_NAME: Final = "edgeai.io/name"
LABEL_ROLE: Final = "edgeai.io/role"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "edgeai"
"""Value of LABEL_MANAGED_BY."""
NOT_MANAGED: Final = f"{LABEL_MANAGED_BY}!={MANAGER}"
"""Label selector of the objects that edgeai did not make."""
SPEC_HASH: Final = "edgeai.io/spec-hash"


def labels_of(object_: Object) -> Mapping[str, str]:
    return object_["metadata"].get("labels") or {}


def label_of(object_: Object, label: str) -> str:
    return str(labels_of(object_).get(label, ""))


def has_role(object_: Object, role: str) -> bool:
    return label_of(object_, LABEL_ROLE) == role


def is_made_elsewhere(child: Object) -> bool:
    """Whether another controller made the child, before edgeai served the job."""
    return label_of(child, LABEL_MANAGED_BY) != MANAGER


def is_being_deleted(object_: Object) -> bool:
    return bool(object_["metadata"].get("deletionTimestamp"))


def controllers(object_: Object) -> list[Mapping[str, Any]]:
    """The ownerReferences of the controllers of an object. The API server allows one."""
    owners = object_["metadata"].get("ownerReferences") or ()
    return [owner for owner in owners if owner.get("controller")]
