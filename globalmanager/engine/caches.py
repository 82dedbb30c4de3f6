"""The caches of all objects that the served kinds need, and whether these caches are complete."""

from collections.abc import Iterable, Mapping

from common import logs
from edgeai.api.resources import NAMESPACES, NODES, PODS, Object, ObjectRef, ResourceType
from globalmanager.cache.followed import Followed
from globalmanager.cache.health import Health, health_of, unserved_groups
from globalmanager.cache.informers import MANAGED, Informers
from globalmanager.cache.store import Store
from globalmanager.contract import Kind

log = logs.get_logger(__name__)


class Caches:
    """The informers of the served kinds, of their children and scalers, of nodes and namespaces."""

    def __init__(self, informers: Informers, kinds: Mapping[ResourceType, Kind]) -> None:
        self._informers = informers
        self.kinds = kinds
        self._unserved: frozenset[str] = frozenset()  # API groups that the log calls not served

    def open(self) -> None:
        """Follow the job resources, nodes and namespaces."""
        for type_ in (*self.kinds, NODES, NAMESPACES):
            self._informers.get(type_)

    def open_children(self) -> None:
        """Follow the children and scalers of the kinds that have been listed."""
        # A group that is not installed may also lack the rights to its children.
        for type_, kind in self.kinds.items():
            if not self._informers.get(type_).synced:
                continue
            for watch_type in kind.watched:
                self._informers.get(watch_type, MANAGED)
            for followed, selector in kind.followed:
                self._informers.get(followed, selector)
            for scaler in kind.scalers:
                self._informers.get(scaler)

    # ---- one cache ------------------------------------------------------------------------------

    def all_of(self, type_: ResourceType) -> Store:
        """The store with all objects of a type."""
        return self._informers.get(type_).store

    def children(self, type_: ResourceType) -> Followed:
        """The cache with the objects of a type that may be children."""
        return self._informers.children(type_)

    def written_to(self, type_: ResourceType) -> Store | Followed:
        """The cache for the API's answers to the writes of a plan."""
        is_whole = type_ in self.kinds or any(type_ in k.scalers for k in self.kinds.values())
        return self.all_of(type_) if is_whole else self.children(type_)

    def is_set_aside(self, ref: ObjectRef) -> bool:
        """Whether a job resource cannot be read as it is now."""
        return ref in self._informers.get(ref.type).set_aside

    def lacks_children(self, type_: ResourceType) -> bool:
        """Whether the API server does not serve a type of children."""
        return self._informers.get(type_, MANAGED).absent

    def pod(self, ref: ObjectRef) -> Object | None:
        """A pod that may belong to a job."""
        return self.children(PODS).get(ref)

    def namespace(self, name: str) -> Object | None:
        return self.all_of(NAMESPACES).get(ObjectRef(NAMESPACES, "", name))

    def lacks_namespaces(self) -> bool:
        return self._informers.get(NAMESPACES).absent

    # ---- whether they are complete --------------------------------------------------------------

    def can_observe(self, kind: Kind) -> bool:
        """Whether the stores of the kind's children and scalers are complete: a child that is not
        there would be created again, and without a scaler the job would get another size.
        """
        informers = (self._informers.get(type_, MANAGED) for type_ in kind.watched)
        followed = (self._informers.get(*selection) for selection in kind.followed)
        scalers = (self._informers.get(type_) for type_ in kind.scalers)
        return all(informer.is_complete for informer in (*informers, *followed, *scalers))

    def has_all_nodes(self) -> bool:
        return self._informers.get(NODES).is_complete

    def can_plan(self, references: Iterable[ObjectRef]) -> bool:
        """Whether the stores of namespaces and of all types that a job refers to are complete."""
        types = {NAMESPACES, *(reference.type for reference in references)}
        return all(self._informers.get(type_).is_complete for type_ in types)

    def is_listed(self) -> bool:
        """Whether the stores have every job resource that existed at the start."""
        unserved = self._unserved_groups()
        return all(
            type_.group in unserved or self._informers.get(type_).is_complete
            for type_ in self.kinds
        )

    def health(self, *, stale_after_s: float) -> Health:
        """Args: stale_after_s: as `EngineSettings.stale_after_s`"""
        return health_of(
            self._informers,
            jobs=self.kinds.keys(),
            stale_after_s=stale_after_s,
            absent_groups=self._unserved_groups(),
        )

    def log_groups(self) -> None:
        """Log which API groups are not served, when that has changed."""
        unserved = self._unserved_groups()
        for group in sorted(unserved.keys() - self._unserved):
            log.info("API group is not served", group=group, reason=unserved[group])
        for group in sorted(self._unserved - unserved.keys()):
            log.info("API group is served now", group=group)
        self._unserved = frozenset(unserved)

    def _unserved_groups(self) -> dict[str, str]:
        return unserved_groups(self._informers.get(type_) for type_ in self.kinds)
