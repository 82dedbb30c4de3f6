"""Cache of one resource type, with indices. The objects come from the informer and from own writes.

`informer` fills the store. `live` adds the API's answers to writes, so that a plan sees the writes
of this process. Objects are raw dicts that no reader may change.

The watch delivers changes in order, but late. The API's answer to a request may be newer or older
than the last event of the watch. Neither of the two may bring back a deleted object. So the store
remembers the uids of deleted objects, as one of two kinds of tombstones:

- deleted: the watch has delivered the deletion. An older answer may still arrive.
- gone: an answer has said that the object is absent. Older events of the watch may still arrive.
The store can forget the uid when the watch delivers the deletion, or after a list that was
requested later.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final

from common import logs
from common.clock import SYSTEM_CLOCK, Clock
from edgeai.api.resources import Object, ObjectRef, ResourceType, ref_of
from edgeai.kube.client import PartOf, whole
from edgeai.newest import NewestKeys
from globalmanager.cache.shared import SharedValues

log = logs.get_logger(__name__)

# Tombstones of deleted objects, needed as long as a request may take, 10 s at most. 4096 of them
# for each type are 5 MB in all.
_DELETED_S: Final = 60.0
_MAX_DELETED: Final = 4096
# Tombstones of gone objects. The store needs a tombstone as long as the watch may be late, 90 s at
# most. At 50 deletions a second this number covers 5 minutes and costs 3 MB. An object without its
# tombstone may come back for the time of one request.
_MAX_GONE: Final = 16384

Indexer = Callable[[Object], Iterable[str]]
Listener = Callable[[Object | None, Object | None], None]
"""Called with (old, new) after each change. None: there was, or is now, no object."""


def uid_of(object_: Object) -> str:
    return str(object_["metadata"].get("uid", ""))


def controller_of(object_: Object) -> Object | None:
    """The owner reference to the object's controller; None when the object has no controller."""
    owners = object_["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def by_uid(object_: Object) -> Iterable[str]:
    return (uid_of(object_),)


def controller_key(namespace: str, uid: str) -> str:
    """Its key in index "controller": an owner reference is valid only within its namespace."""
    return f"{namespace}/{uid}"


def by_controller(object_: Object) -> Iterable[str]:
    owner = controller_of(object_)
    namespace = object_["metadata"].get("namespace", "")
    return (controller_key(namespace, owner["uid"]),) if owner else ()


INDEXERS: Final[Mapping[str, Indexer]] = {
    "uid": by_uid,
    "controller": by_controller,
}


def is_newer(candidate: Object, current: Object) -> bool:
    """Whether `candidate` is a later state than `current` of the same name.

    The resourceVersions of one type are growing integers. Kubernetes promises this since release
    1.35, and earlier releases behave the same. Versions that are not integers have no order, so a
    different version counts as newer.
    """
    new, old = version_of(candidate), version_of(current)
    return int(new) > int(old) if _are_numbers(new, old) else new != old


class Store:
    """Objects of one type by name and by each index. A change costs O(indices), a list O(found).

    Args:
        label: "key=value"; the collection has only objects with this label. "" means all objects
        part_of: gives the part of an object that the collection keeps
        shared: values that other stores share, too
    """

    def __init__(
        self,
        type_: ResourceType,
        indexers: Mapping[str, Indexer] = INDEXERS,
        *,
        label: str = "",
        part_of: PartOf = whole,
        shared: SharedValues | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.type = type_
        self._shared = SharedValues() if shared is None else shared
        self._clock = clock
        self._label = label
        self._part_of = part_of
        self._indexers = dict(indexers)
        self._objects: dict[ObjectRef, Object] = {}
        self._index: dict[str, dict[str, set[ObjectRef]]] = {name: {} for name in indexers}
        self._listeners: list[Listener] = []
        # uid -> when the deletion was noted, the newest last
        self._deleted = NewestKeys[str, float](_MAX_DELETED)
        # uid -> its absence count, the newest last
        self._absence_by_uid = NewestKeys[str, int](_MAX_GONE)
        self.absences = 0
        """Number of absences that `observe_gone` has recorded so far."""
        self._list_version = ""  # resourceVersion of the last list

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Object]:
        """All objects, in no order that means anything."""
        return iter(self._objects.values())

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` before a changing method returns. Its exceptions are logged."""
        self._listeners.append(listener)

    def get(self, ref: ObjectRef) -> Object | None:
        return self._objects.get(ref)

    def list(self, namespace: str = "") -> tuple[Object, ...]:
        """The objects of a namespace, ordered by namespace and name; "" means all namespaces."""
        refs = (ref for ref in self._objects if not namespace or ref.namespace == namespace)
        return self._sorted(refs)

    def find(self, index: str, key: str) -> tuple[Object, ...]:
        """The objects under `key` of `index`, ordered by namespace and name."""
        return self._sorted(self._index[index].get(key, ()))

    def observe(self, object_: Object) -> None:
        """Record an object from an answer of the API, unless the store has a newer state."""
        ref, uid = ref_of(self.type, object_), uid_of(object_)
        old = self._objects.get(ref)
        if uid in self._deleted or uid in self._absence_by_uid:
            return
        if old is None and _is_not_after(object_, self._list_version):
            return  # the newer list lacked the object, so the object was deleted before
        if old is not None and uid_of(old) != uid:
            # Two objects have had this name, so the older object is gone.
            self.observe_gone(ref, uid_of(old) if is_newer(object_, old) else uid)
        if uid not in self._absence_by_uid and self._covers(object_):
            self._put_if_newer(ref, object_)

    def observe_gone(self, ref: ObjectRef, uid: str) -> None:
        """Record the API's answer that the object with this name and uid no longer exists."""
        self.absences += 1
        self._absence_by_uid[uid] = self.absences
        old = self._objects.get(ref)
        if old is not None and uid_of(old) == uid:
            self._drop(ref)

    def upsert(self, object_: Object) -> None:
        """Record a state that the watch delivers, unless the known state is newer."""
        uid = uid_of(object_)
        if uid not in self._absence_by_uid:
            self._deleted.pop(uid, None)
            self._put_if_newer(ref_of(self.type, object_), object_)

    def remove(self, object_: Object) -> None:
        """Record a deletion that the watch delivers. A newer object of the same name stays."""
        ref = ref_of(self.type, object_)
        old = self._objects.get(ref)
        self._absence_by_uid.pop(uid_of(object_), None)
        self._mark_deleted(uid_of(object_))
        if old is not None and not (uid_of(old) != uid_of(object_) and is_newer(old, object_)):
            self._drop(ref)

    def remove_predecessor(self, successor: Object) -> None:
        """Remove the known object when an unreadable object with another uid has taken its name.

        Args: successor: the metadata of the unreadable object
        """
        ref, uid = ref_of(self.type, successor), uid_of(successor)
        old = self._objects.get(ref)
        if old is not None and uid not in ("", uid_of(old)) and is_newer(successor, old):
            self._mark_deleted(uid_of(old))
            self._drop(ref)

    def replace(
        self,
        objects: Iterable[Object],
        resource_version: str,
        *,
        absences: int,
        rewound: bool,
        unreadable: Collection[ObjectRef] = (),
    ) -> None:
        """Record a list: the states of its objects, and the deletion of all other objects.

        Args:
            resource_version: version of the list. An object that was written later stays
            absences: the value of `self.absences` when the list was requested. An object whose
                absence was recorded later does not come back. An object whose absence was recorded
                earlier comes back, because a backup may have restored it
            rewound: True when the server's history went back after a restored backup. Then the list
                also replaces newer states
            unreadable: the objects of the list that cannot be read
        """
        objects_by_ref = {
            ref_of(self.type, object_): object_
            for object_ in objects
            if self._absence_by_uid.get(uid_of(object_), 0) <= absences
        }
        self._list_version = resource_version
        # The list is newer than these absences, so no later event can bring back these objects.
        while self._absence_by_uid and next(iter(self._absence_by_uid.values())) <= absences:
            uid, _ = self._absence_by_uid.popitem(last=False)
            self._mark_deleted(uid)
        present = {*objects_by_ref, *unreadable}
        for ref, old in list(self._objects.items()):
            if ref not in present and (rewound or not _is_after(old, resource_version)):
                self._mark_deleted(uid_of(old))
                self._drop(ref)
        for ref, object_ in objects_by_ref.items():
            if rewound and self._objects.get(ref) != object_:
                self._put(ref, object_)
            elif not rewound:
                self.upsert(object_)

    def _covers(self, object_: Object) -> bool:
        """Whether the watch covers the object, so that it will report its deletion."""
        key, _, value = self._label.partition("=")
        return not key or (object_["metadata"].get("labels") or {}).get(key) == value

    def _put_if_newer(self, ref: ObjectRef, object_: Object) -> None:
        old = self._objects.get(ref)
        if old is None or is_newer(object_, old):
            self._put(ref, object_)

    def part_of(self, object_: Object) -> Object:
        part = self._part_of(object_)
        self._shared.share(part)
        return part

    def _put(self, ref: ObjectRef, object_: Object) -> None:
        object_ = self._part_of(object_)
        # before any change, because the call raises for an object with a wrong form
        keys = self._keys(object_)
        old = self._objects.get(ref)
        if old is not None:
            self._unindex(ref, old)
            object_ = _with_shared_spec(object_, old)
        self._shared.share(object_, old)
        self._objects[ref] = object_
        for name, key in keys:
            self._index[name].setdefault(key, set()).add(ref)
        self._notify(old, object_)

    def _drop(self, ref: ObjectRef) -> None:
        old = self._objects.pop(ref)
        self._unindex(ref, old)
        self._notify(old, None)

    def _unindex(self, ref: ObjectRef, object_: Object) -> None:
        for name, key in self._keys(object_):
            refs = self._index[name][key]
            refs.discard(ref)
            if not refs:
                del self._index[name][key]

    def _keys(self, object_: Object) -> set[tuple[str, str]]:
        """The (index, key) pairs under which `find` finds the object."""
        return {(name, key) for name, indexer in self._indexers.items() for key in indexer(object_)}

    def _notify(self, old: Object | None, new: Object | None) -> None:
        for listener in self._listeners:
            try:
                listener(old, new)
            except Exception:
                # A bug in one listener must not make the store differ from the API.
                log.exception("store listener failed", resource=str(self.type))

    def _mark_deleted(self, uid: str) -> None:
        now = self._clock.elapsed()
        self._deleted[uid] = now
        while next(iter(self._deleted.values())) < now - _DELETED_S:
            self._deleted.popitem(last=False)

    def _sorted(self, refs: Iterable[ObjectRef]) -> tuple[Object, ...]:
        ordered = sorted(refs, key=attrgetter("namespace", "name"))
        return tuple(self._objects[ref] for ref in ordered)


def _with_shared_spec(object_: Object, old: Object) -> Object:
    """The object with the spec of its earlier state, if both are equal.

    What the engine decodes from a spec refers to parts of the spec. With a new spec after each
    write of .status, those parts would be in memory twice.
    """
    if "spec" not in object_ or object_["spec"] != old.get("spec"):
        return object_
    return {**object_, "spec": old["spec"]}


def version_of(object_: Object) -> str:
    return str(object_["metadata"].get("resourceVersion", ""))


def _is_after(object_: Object, resource_version: str) -> bool:
    version = version_of(object_)
    return _are_numbers(version, resource_version) and int(version) > int(resource_version)


def _is_not_after(object_: Object, resource_version: str) -> bool:
    version = version_of(object_)
    return _are_numbers(version, resource_version) and int(version) <= int(resource_version)


def _are_numbers(*versions: str) -> bool:
    return all(version.isdecimal() for version in versions)
