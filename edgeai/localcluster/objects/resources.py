"""The type `Resource`, and one constant for each built-in resource.

A `Resource` has one group, version and plural. `store.Registry` also has custom resources.
"""

from typing import Any, Final

import msgspec

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name of an object. A cluster-scoped object has the namespace ""."""


def key(object_: Object) -> Key:
    return object_["metadata"].get("namespace") or "", object_["metadata"]["name"]


def field_value(object_: Object, path: str) -> Any:
    """The value at a dotted path, with or without a dot before it; None if there is none."""
    value: Any = object_
    for step in path.lstrip(".").split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


_GROUPS_WITH_GENERATION = (
    "apiextensions.k8s.io",
    "apps",
    "networking.k8s.io",
    "policy",
)
_ONLY_CONDITIONAL_UPDATES = (
    "customresourcedefinitions.apiextensions.k8s.io",
    "leases.coordination.k8s.io",
    "poddisruptionbudgets.policy",
)
VERBS = (
    "create",
    "delete",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)


class Column(msgspec.Struct, frozen=True, rename="camel"):
    """A printer column of a custom resource (additionalPrinterColumns)."""

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0


class ScalePaths(msgspec.Struct, frozen=True, rename="camel"):
    """Dotted paths of the fields that the subresource /scale shows."""

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str = ""


class Resource(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One version of a resource that the API serves.

    The store keeps the objects of all versions of a resource together.
    """

    version: str
    plural: str
    kind: str
    group: str = ""
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    status: bool = False
    """Whether only requests to /status write the status."""
    scale: ScalePaths | None = None
    extra_subresources: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    """Selectable fields besides metadata.name and metadata.namespace."""
    columns: tuple[Column, ...] = ()
    schema: dict[str, Any] | None = None
    """The structural schema of a custom resource; None for a built-in resource."""
    custom: bool = False

    @property
    def group_resource(self) -> str:
        """The name of the resource without its version, like `pods` or `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_version(self) -> str:
        """The apiVersion of the resource's objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular_name(self) -> str:
        return self.singular or self.kind.lower()

    @property
    def group_version_kind(self) -> Object:
        return {"group": self.group, "version": self.version, "kind": self.kind}

    @property
    def has_generation(self) -> bool:
        """Whether metadata.generation counts the changes of the resource's objects."""
        return self.custom or self.group in _GROUPS_WITH_GENERATION

    @property
    def allows_unconditional_update(self) -> bool:
        """Whether an update without metadata.resourceVersion is allowed."""
        return not (self.custom or self.group_resource in _ONLY_CONDITIONAL_UPDATES)

    @property
    def subresources(self) -> tuple[str, ...]:
        names = ("status",) * self.status + ("scale",) * (self.scale is not None)
        return names + self.extra_subresources

    @property
    def selectable_fields(self) -> tuple[str, ...]:
        return ("metadata.name", "metadata.namespace", *self.fields)


_POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
)
_SUBJECT_FIELDS = ["apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid"]
_EVENT_FIELDS = (
    *(f"involvedObject.{field}" for field in _SUBJECT_FIELDS),
    "reason",
    "reportingComponent",
    "source.component",
    "type",
)


def _builtin(path: str, kind: str, *short_names: str, **fields: Any) -> Resource:
    """A built-in resource. Args: path: like "apps/v1/deployments"; the core group has no name"""
    *group, version, plural = path.split("/")
    return Resource(
        group="".join(group),
        version=version,
        plural=plural,
        kind=kind,
        short_names=short_names,
        **fields,
    )


def _rbac(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return _builtin(f"rbac.authorization.k8s.io/v1/{plural}", kind, namespaced=namespaced)


_CLUSTER: Final = {"namespaced": False}
_ALL: Final = {"categories": ("all",), "status": True}

NAMESPACES = _builtin(
    "v1/namespaces", "Namespace", "ns", status=True, fields=("status.phase",), **_CLUSTER
)
PODS = _builtin(
    "v1/pods", "Pod", "po", extra_subresources=("log", "exec"), fields=_POD_FIELDS, **_ALL
)
SERVICES = _builtin("v1/services", "Service", "svc", fields=("spec.type", "spec.clusterIP"), **_ALL)
ENDPOINTS = _builtin("v1/endpoints", "Endpoints", "ep")
CONFIGMAPS = _builtin("v1/configmaps", "ConfigMap", "cm")
SECRETS = _builtin("v1/secrets", "Secret", fields=("type",))
SERVICEACCOUNTS = _builtin("v1/serviceaccounts", "ServiceAccount", "sa")
RESOURCEQUOTAS = _builtin("v1/resourcequotas", "ResourceQuota", "quota")
EVENTS = _builtin("v1/events", "Event", "ev", fields=_EVENT_FIELDS)
NODES = _builtin("v1/nodes", "Node", "no", status=True, fields=("spec.unschedulable",), **_CLUSTER)
DEPLOYMENTS = _builtin(
    "apps/v1/deployments",
    "Deployment",
    "deploy",
    scale=ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector"),
    **_ALL,
)
LEASES = _builtin("coordination.k8s.io/v1/leases", "Lease")
CUSTOMRESOURCEDEFINITIONS = _builtin(
    "apiextensions.k8s.io/v1/customresourcedefinitions",
    "CustomResourceDefinition",
    "crd",
    "crds",
    categories=("api-extensions",),
    status=True,
    **_CLUSTER,
)
BUILTINS: tuple[Resource, ...] = (
    NAMESPACES,
    PODS,
    SERVICES,
    ENDPOINTS,
    CONFIGMAPS,
    SECRETS,
    SERVICEACCOUNTS,
    RESOURCEQUOTAS,
    EVENTS,
    NODES,
    DEPLOYMENTS,
    LEASES,
    CUSTOMRESOURCEDEFINITIONS,
    # The following objects have no effect. Clients can apply manifests of such objects.
    _builtin("autoscaling/v2/horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa", **_ALL),
    _builtin("v1/persistentvolumeclaims", "PersistentVolumeClaim", "pvc"),
    _builtin("v1/limitranges", "LimitRange", "limits"),
    _builtin("apps/v1/replicasets", "ReplicaSet", "rs"),
    _builtin("discovery.k8s.io/v1/endpointslices", "EndpointSlice"),
    _builtin("networking.k8s.io/v1/ingresses", "Ingress", "ing"),
    _builtin("networking.k8s.io/v1/networkpolicies", "NetworkPolicy", "netpol"),
    _builtin("policy/v1/poddisruptionbudgets", "PodDisruptionBudget", "pdb"),
    _builtin("scheduling.k8s.io/v1/priorityclasses", "PriorityClass", "pc", **_CLUSTER),
    _rbac("roles", "Role", namespaced=True),
    _rbac("rolebindings", "RoleBinding", namespaced=True),
    _rbac("clusterroles", "ClusterRole", namespaced=False),
    _rbac("clusterrolebindings", "ClusterRoleBinding", namespaced=False),
)
