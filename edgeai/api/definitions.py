"""What a kind is called in the API, and which structs its objects have."""

from collections.abc import Mapping

import msgspec

from edgeai.api.resources import ResourceType


class Suspension(msgspec.Struct, frozen=True):
    """The field of a job that suspends it: its path in the object, and its two values."""

    path: tuple[str, ...]
    on: bool | str = True
    off: bool | str | None = False
    """None: the field is removed."""


class Scale(msgspec.Struct, frozen=True, rename="camel"):
    """The scale subresource of a CRD, as JSON paths. `kubectl scale` and autoscalers use the
    subresource.
    """

    spec_replicas_path: str
    status_replicas_path: str
    label_selector_path: str


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """The names of a kind, and the structs of its spec and status, the same in all versions."""

    types: tuple[ResourceType, ...]
    """Every version of every resource. The API server stores the first version of a resource."""
    short_names: Mapping[str, tuple[str, ...]] = {}
    """API group -> short names. kubectl warns about a short name that two groups share."""
    spec: type[msgspec.Struct]
    status: type[msgspec.Struct]
    has_workers: bool = True
    """Whether an object has pods of its own."""
    pod_owners: tuple[ResourceType, ...] = ()
    """Types of the children for which Kubernetes creates the pods."""
    suspensions: tuple[Suspension, ...] = ()
    """How a person suspends a job of this kind; empty: not at all. A job runs when none of the
    fields suspends it."""
    scale: Scale | None = None

    @property
    def resources(self) -> tuple[ResourceType, ...]:
        """One type for each resource: the version that the API server stores."""
        first: dict[str, ResourceType] = {}
        for type_ in self.types:
            first.setdefault(str(type_), type_)
        return tuple(first.values())

    @property
    def name(self) -> str:
        return self.types[0].kind

    @property
    def singular(self) -> str:
        return self.name.lower()


def edge_types(plural: str, kind: str) -> tuple[ResourceType, ...]:
    """A resource of edgeai.io, and the one of sedna.io that users of Sedna write."""
    groups = ("edgeai.io", "sedna.io")
    return tuple(ResourceType(group, "v1alpha1", plural, kind) for group in groups)
