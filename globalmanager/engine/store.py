"""Cache of one resource type, with indices: what the informer saw and this process wrote.

Filled by `informer` and, so that a plan reads its own writes, by whoever writes. Read by observe
and REST. Objects are raw dicts that nobody may change. Never speaks to the API.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from common import logs
from globalmanager.model import Object, ObjectRef, ResourceType, ref_of

log = logs.get_logger(__name__)

_MAX_TOMBSTONES: Final = 4096

Indexer = Callable[[Object], Iterable[str]]
Listener = Callable[[Object | None, Object | None], None]
"""(old, new) of one effective change; old is None for a new object, new for a deleted one."""


def uid_of(object_: Object) -> str:
    return str(object_["metadata"].get("uid", ""))


def controller_of(object_: Object) -> Object | None:
    """The owner reference of the controller."""
    owners = object_["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def by_uid(object_: Object) -> Iterable[str]:
    return (uid_of(object_),)


def controller_key(namespace: str, uid: str) -> str:
    """Key of index "controller". An owner reference is valid only within its own namespace."""
    return f"{namespace}/{uid}"


def by_controller(object_: Object) -> Iterable[str]:
    owner = controller_of(object_)
    namespace = object_["metadata"].get("namespace", "")
    return (controller_key(namespace, owner["uid"]),) if owner else ()


INDEXERS: Final[Mapping[str, Indexer]] = {
    "uid": by_uid,
    "controller": by_controller,
}


def is_newer(candidate: Object, known: Object) -> bool:
    """Whether `candidate` is a later state than `known` of the same name.

    Versions within one resource type are integers that grow (promised since Kubernetes 1.35, so
    before); of any others it is only known whether they differ.
    """
    new, old = (_version(one) for one in (candidate, known))
    return int(new) > int(old) if new.isdecimal() and old.isdecimal() else new != old


class Store:
    """Objects of one type by name, and by each index. Change in O(indices), list in O(found).

    Args:
        metadata_only: keep nothing else of an object
    """

    def __init__(
        self,
        type_: ResourceType,
        indexers: Mapping[str, Indexer] = INDEXERS,
        *,
        metadata_only: bool = False,
    ) -> None:
        self.type = type_
        self._metadata_only = metadata_only
        self._indexers = dict(indexers)
        self._objects: dict[ObjectRef, Object] = {}
        self._index: dict[str, dict[str, set[ObjectRef]]] = {name: {} for name in indexers}
        self._listeners: list[Listener] = []
        self._tombstones: OrderedDict[str, None] = OrderedDict()  # uids seen deleted, newest last

    def __len__(self) -> int:
        return len(self._objects)

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` after each effective change, within it; its errors are logged."""
        self._listeners.append(listener)

    def get(self, ref: ObjectRef) -> Object | None:
        return self._objects.get(ref)

    def list(self, namespace: str = "") -> tuple[Object, ...]:
        """Ordered by namespace and name; "" means all namespaces."""
        refs = (ref for ref in self._objects if not namespace or ref.namespace == namespace)
        return self._sorted(refs)

    def find(self, index: str, key: str) -> tuple[Object, ...]:
        """What `index` has under `key`, ordered by namespace and name."""
        return self._sorted(self._index[index].get(key, ()))

    def observe_write(self, object_: Object) -> None:
        """Take in what the API answered to a write, unless the informer knows better."""
        if uid_of(object_) not in self._tombstones:
            self.upsert(object_)

    def upsert(self, object_: Object) -> None:
        """Take in a state; an older one than known is ignored."""
        ref = ref_of(self.type, object_)
        known = self._objects.get(ref)
        if known is None or is_newer(object_, known):
            self._put(ref, object_)

    def remove(self, object_: Object) -> None:
        """Take in a deletion; ignored when the name has been taken anew since."""
        ref = ref_of(self.type, object_)
        known = self._objects.get(ref)
        self._bury(uid_of(object_))
        if known is not None and not (
            uid_of(known) != uid_of(object_) and is_newer(known, object_)
        ):
            self._drop(ref)

    def replace(self, objects: Iterable[Object], resource_version: str, *, rewound: bool) -> None:
        """Take in a list: changes, and deletions of what it no longer has.

        Args:
            resource_version: of the list; what was written after it is kept
            rewound: the server's history went back (restored from a backup): believe the list
        """
        listed = {ref_of(self.type, object_): object_ for object_ in objects}
        for ref, known in list(self._objects.items()):
            if ref not in listed and (rewound or not _is_after(known, resource_version)):
                self._bury(uid_of(known))
                self._drop(ref)
        for ref, object_ in listed.items():
            if rewound and self._objects.get(ref) != object_:
                self._put(ref, object_)
            elif not rewound:
                self.upsert(object_)

    def _put(self, ref: ObjectRef, object_: Object) -> None:
        object_["metadata"].pop("managedFields", None)  # half of a pod's memory, read by nobody
        if self._metadata_only:
            object_ = {"metadata": object_["metadata"]}
        keys = self._keys(object_)  # first: an object of odd form must leave no trace
        old = self._objects.get(ref)
        if old is not None:
            self._unindex(ref, old)
        self._objects[ref] = object_
        for name, key in keys:
            self._index[name].setdefault(key, set()).add(ref)
        self._tell(old, object_)

    def _drop(self, ref: ObjectRef) -> None:
        old = self._objects.pop(ref)
        self._unindex(ref, old)
        self._tell(old, None)

    def _unindex(self, ref: ObjectRef, object_: Object) -> None:
        for name, key in self._keys(object_):
            refs = self._index[name][key]
            refs.discard(ref)
            if not refs:
                del self._index[name][key]

    def _keys(self, object_: Object) -> set[tuple[str, str]]:
        """(index, key) pairs under which the object is found."""
        return {(name, key) for name, indexer in self._indexers.items() for key in indexer(object_)}

    def _tell(self, old: Object | None, new: Object | None) -> None:
        for listener in self._listeners:
            try:
                listener(old, new)
            except Exception:
                # One listener's bug must not make the cache differ from the API.
                log.exception("store listener failed", resource=str(self.type))

    def _bury(self, uid: str) -> None:
        # The answer to a write may come after the news that the object was deleted since.
        self._tombstones[uid] = None
        if len(self._tombstones) > _MAX_TOMBSTONES:
            self._tombstones.popitem(last=False)

    def _sorted(self, refs: Iterable[ObjectRef]) -> tuple[Object, ...]:
        ordered = sorted(refs, key=lambda ref: (ref.namespace, ref.name))
        return tuple(self._objects[ref] for ref in ordered)


def _version(object_: Object) -> str:
    return str(object_["metadata"].get("resourceVersion", ""))


def _is_after(object_: Object, resource_version: str) -> bool:
    version = _version(object_)
    return (
        version.isdecimal()
        and resource_version.isdecimal()
        and int(version) > int(resource_version)
    )
