"""The resources that the API serves now: built-in resources, and resources that CRDs define.

Each store has one registry. Only the store changes its registry: when a client writes or deletes a
CustomResourceDefinition.
"""

from collections.abc import Iterator

from edgeai.localcluster.objects import crds
from edgeai.localcluster.objects.resources import BUILTINS, Object, Resource


class Registry:
    """Finds resources by group, version and plural, or by group and plural."""

    def __init__(self) -> None:
        self._by_version: dict[tuple[str, str, str], Resource] = {}
        self._storage_versions: dict[str, Resource] = {}
        for resource in BUILTINS:
            self._add(resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(tuple(self._by_version.values()))

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._by_version.get((group, version, plural))

    def stored(self, group_resource: str) -> Resource | None:
        """The storage version of the resource; None if the API does not serve the resource."""
        return self._storage_versions.get(group_resource)

    def all_stored(self) -> tuple[Resource, ...]:
        """All resources. Each resource occurs once, in its storage version."""
        return tuple(self._storage_versions.values())

    def define(self, crd: Object) -> None:
        """Serve the versions of a CRD. Stop serving the versions of its previous definition."""
        self.withdraw(crd)
        for resource, is_storage in crds.resources(crd):
            self._add(resource, is_storage=is_storage)

    def withdraw(self, crd: Object) -> None:
        name = crd["metadata"]["name"]
        self._storage_versions.pop(name, None)
        for key, resource in tuple(self._by_version.items()):
            if resource.group_resource == name:
                del self._by_version[key]

    def _add(self, resource: Resource, *, is_storage: bool = True) -> None:
        self._by_version[resource.group, resource.version, resource.plural] = resource
        if is_storage:
            self._storage_versions[resource.group_resource] = resource
