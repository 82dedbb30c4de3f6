"""Types, references and objects of the Kubernetes API. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

Object = dict[str, Any]  # a Kubernetes object as the API holds it; never changed in place


class ResourceType(msgspec.Struct, frozen=True, cache_hash=True):
    """One version of a resource: group, version, plural ("deployments") and kind ("Deployment").

    `str()` of a ResourceType has the plural and the group, for example "deployments.apps". It
    leaves the version out, because all versions of a resource show the same objects. Task keys,
    labels and file names contain this text.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def is_built_in(self) -> bool:
        """Whether the type belongs to Kubernetes itself and not to a CRD. The group of such a type
        has no dot or ends in .k8s.io.
        """
        return "." not in self.group or self.group.endswith(".k8s.io")

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of a collection (when `name` is empty), of an object, or of a
        subresource.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join(part for part in (root + scope, self.plural, name, subresource) if part)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


NODES = ResourceType("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = ResourceType("", "v1", "namespaces", "Namespace", namespaced=False)
PODS = ResourceType("", "v1", "pods", "Pod")
SERVICES = ResourceType("", "v1", "services", "Service")
SECRETS = ResourceType("", "v1", "secrets", "Secret")
CONFIG_MAPS = ResourceType("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS = ResourceType("", "v1", "serviceaccounts", "ServiceAccount")
DEPLOYMENTS = ResourceType("apps", "v1", "deployments", "Deployment")
REPLICASETS = ResourceType("apps", "v1", "replicasets", "ReplicaSet")
AUTOSCALERS = ResourceType(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"
)

POD_CONTROLLERS: Final[Mapping[ResourceType, ResourceType]] = {DEPLOYMENTS: REPLICASETS}
"""Type of a child -> type of the object that Kubernetes creates between the child and its pods. The
pods have this second object as controller."""


class ObjectRef(msgspec.Struct, frozen=True, order=False, cache_hash=True):
    """Names one object of the API. The namespace of a cluster-scoped object is ""."""

    type: ResourceType
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.type} {where}"


def ref_of(type_: ResourceType, object_: Object) -> ObjectRef:
    metadata = object_["metadata"]
    return ObjectRef(type_, metadata.get("namespace", ""), metadata["name"])
