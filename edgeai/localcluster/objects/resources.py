"""The type `Resource`, and one constant for each built-in resource.

A `Resource` has one group, version and plural. The whole package uses the constants.
`registry.Registry` also has the custom resources.
"""

from typing import Any, Literal

import msgspec

Object = dict[str, Any]

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
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)


class Column(msgspec.Struct, frozen=True):
    """A printer column of a custom resource (additionalPrinterColumns)."""

    name: str
    type: str
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0


class ScalePaths(msgspec.Struct, frozen=True):
    """Dotted paths of the fields that the subresource /scale shows."""

    replicas: str = "spec.replicas"
    status_replicas: str = "status.replicas"
    selector: str = ""


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
    def has_generation(self) -> bool:
        """Whether metadata.generation counts the changes of the resource's objects."""
        return self.custom or self.group in _GROUPS_WITH_GENERATION

    @property
    def allows_unconditional_update(self) -> bool:
        """Whether an update without metadata.resourceVersion is allowed."""
        return not (self.custom or self.group_resource in _ONLY_CONDITIONAL_UPDATES)

    @property
    def subresources(self) -> tuple[str, ...]:
        named = (("status", self.status), ("scale", self.scale is not None))
        return tuple(name for name, served in named if served) + self.extra_subresources

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
_EVENT_FIELDS = (
    *(
        f"involvedObject.{field}"
        for field in ("apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion")
    ),
    "involvedObject.uid",
    "reason",
    "reportingComponent",
    "source.component",
    "type",
)
_ALL = ("all",)

NAMESPACES = Resource(
    version="v1",
    plural="namespaces",
    kind="Namespace",
    namespaced=False,
    short_names=("ns",),
    status=True,
    fields=("status.phase",),
)
PODS = Resource(
    version="v1",
    plural="pods",
    kind="Pod",
    short_names=("po",),
    categories=_ALL,
    status=True,
    extra_subresources=("log", "exec"),
    fields=_POD_FIELDS,
)
SERVICES = Resource(
    version="v1",
    plural="services",
    kind="Service",
    short_names=("svc",),
    categories=_ALL,
    status=True,
    fields=("spec.type", "spec.clusterIP"),
)
ENDPOINTS = Resource(version="v1", plural="endpoints", kind="Endpoints", short_names=("ep",))
CONFIGMAPS = Resource(version="v1", plural="configmaps", kind="ConfigMap", short_names=("cm",))
SECRETS = Resource(version="v1", plural="secrets", kind="Secret", fields=("type",))
SERVICEACCOUNTS = Resource(
    version="v1", plural="serviceaccounts", kind="ServiceAccount", short_names=("sa",)
)
RESOURCEQUOTAS = Resource(
    version="v1", plural="resourcequotas", kind="ResourceQuota", short_names=("quota",)
)
EVENTS = Resource(
    version="v1", plural="events", kind="Event", short_names=("ev",), fields=_EVENT_FIELDS
)
NODES = Resource(
    version="v1",
    plural="nodes",
    kind="Node",
    namespaced=False,
    short_names=("no",),
    status=True,
    fields=("spec.unschedulable",),
)
DEPLOYMENTS = Resource(
    group="apps",
    version="v1",
    plural="deployments",
    kind="Deployment",
    short_names=("deploy",),
    categories=_ALL,
    status=True,
    scale=ScalePaths(selector="spec.selector"),
)
HORIZONTALPODAUTOSCALERS = Resource(
    group="autoscaling",
    version="v2",
    plural="horizontalpodautoscalers",
    kind="HorizontalPodAutoscaler",
    short_names=("hpa",),
    categories=_ALL,
    status=True,
)
LEASES = Resource(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease")
CUSTOMRESOURCEDEFINITIONS = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    status=True,
)


class _InertObjects(msgspec.Struct, frozen=True):
    """A resource whose objects have no effect. Clients can apply manifests of such objects."""

    group: str
    plural: str
    kind: str
    short_names: tuple[str, ...] = ()
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"

    def resource(self) -> Resource:
        return Resource(
            group=self.group,
            version="v1",
            plural=self.plural,
            kind=self.kind,
            namespaced=self.scope == "Namespaced",
            short_names=self.short_names,
        )


_RBAC = "rbac.authorization.k8s.io"
_INERT_OBJECTS = (
    _InertObjects("", "persistentvolumeclaims", "PersistentVolumeClaim", ("pvc",)),
    _InertObjects("", "limitranges", "LimitRange", ("limits",)),
    _InertObjects("apps", "replicasets", "ReplicaSet", ("rs",)),
    _InertObjects("discovery.k8s.io", "endpointslices", "EndpointSlice"),
    _InertObjects("networking.k8s.io", "ingresses", "Ingress", ("ing",)),
    _InertObjects("networking.k8s.io", "networkpolicies", "NetworkPolicy", ("netpol",)),
    _InertObjects("policy", "poddisruptionbudgets", "PodDisruptionBudget", ("pdb",)),
    _InertObjects("scheduling.k8s.io", "priorityclasses", "PriorityClass", ("pc",), "Cluster"),
    _InertObjects(_RBAC, "roles", "Role"),
    _InertObjects(_RBAC, "rolebindings", "RoleBinding"),
    _InertObjects(_RBAC, "clusterroles", "ClusterRole", (), "Cluster"),
    _InertObjects(_RBAC, "clusterrolebindings", "ClusterRoleBinding", (), "Cluster"),
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
    HORIZONTALPODAUTOSCALERS,
    LEASES,
    CUSTOMRESOURCEDEFINITIONS,
    *(inert.resource() for inert in _INERT_OBJECTS),
)
