"""Caches that a test fills instead of informers."""

from collections.abc import Mapping

from edgeai.api.resources import Object, ResourceType
from globalmanager.cache.followed import Followed
from globalmanager.cache.store import Store
from globalmanager.contract import Kind
from globalmanager.engine.caches import Caches


class Stores(Caches):
    """Stores that are complete, however little they have. One store holds all objects of a type,
    so also the children.
    """

    def __init__(self, kinds: Mapping[ResourceType, Kind] | None = None) -> None:
        self.kinds = kinds or {}
        self._stores: dict[ResourceType, Store] = {}
        self.has_namespaces = True
        self.has_nodes = True

    def all_of(self, type_: ResourceType) -> Store:
        return self._stores.setdefault(type_, Store(type_))

    def children(self, type_: ResourceType) -> Followed:
        return Followed([self.all_of(type_)])

    def put(self, type_: ResourceType, object_: Object) -> None:
        self.all_of(type_).upsert(object_)

    def can_observe(self, kind: Kind) -> bool:
        return True

    def has_all_nodes(self) -> bool:
        return self.has_nodes

    def is_listed(self) -> bool:
        return True

    def lacks_children(self, type_: ResourceType) -> bool:
        return False

    def lacks_namespaces(self) -> bool:
        return not self.has_namespaces
