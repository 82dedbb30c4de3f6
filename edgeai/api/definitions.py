"""What a kind is called in the API, and which structs its objects have."""

from collections.abc import Mapping

import msgspec

from edgeai.api.resources import ResourceType


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
