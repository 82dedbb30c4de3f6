"""Cache of one resource type, with indices: what the informer saw and this process wrote.

Filled by `informer` and, so that a plan reads its own writes, by `live`. Read by observe and REST.
Objects are raw dicts that nobody may change. Never speaks to the API.

The watch tells changes in their order, but late; an answer of the API to a request may be ahead of
the watch, or overtaken by it. So the store remembers two kinds of uids that are gone:

- deleted: the watch told the deletion. An answer that is still on its way must not bring them back.
- gone: an answer told the absence. What the watch has yet to tell must not bring them back, either.
  The watch has caught up once it tells the deletion, or once a list was asked for later.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from common import logs
from globalmanager.contract import Object, ObjectRef, ResourceType, ref_of

log = logs.get_logger(__name__)

_MAX_DELETED: Final = 4096  # needed for as long as a request takes, 10 s at most
# Needed for as long as the watch is late. At 50 deletions a second this is 5 minutes, and a watch
# lives for 90 s. It costs 3 MB at most; beyond it an object may appear again, for one request.
_MAX_GONE: Final = 16384

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
    return int(new) > int(old) if _are_numbers(new, old) else new != old


class Store:
    """Objects of one type by name, and by each index. Change in O(indices), list in O(found).

    Args:
        label: "key=value" that the collection's objects have; "": it has all of the type
        metadata_only: keep nothing else of an object
    """

    def __init__(
        self,
        type_: ResourceType,
        indexers: Mapping[str, Indexer] = INDEXERS,
        *,
        label: str = "",
        metadata_only: bool = False,
    ) -> None:
        self.type = type_
        self._label = label
        self._metadata_only = metadata_only
        self._indexers = dict(indexers)
        self._objects: dict[ObjectRef, Object] = {}
        self._index: dict[str, dict[str, set[ObjectRef]]] = {name: {} for name in indexers}
        self._listeners: list[Listener] = []
        self._deleted: OrderedDict[str, None] = OrderedDict()  # uids, newest last
        self._gone: OrderedDict[str, int] = OrderedDict()  # uid -> moment, newest last
        self._moment = 0
        self._listed = ""  # resourceVersion of the last list

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

    @property
    def moment(self) -> int:
        """How often an answer told an absence so far; to be kept when a list is asked for."""
        return self._moment

    def observe(self, object_: Object) -> None:
        """Take in an object that the API answered, unless the watch knows better."""
        ref, uid = ref_of(self.type, object_), uid_of(object_)
        known = self._objects.get(ref)
        if uid in self._deleted or uid in self._gone:
            return
        if known is None and _is_until(object_, self._listed):
            return  # the last list did not have it, so it was deleted before
        if known is not None and uid_of(known) != uid:  # two have had the name: the older is gone
            self.observe_gone(ref, uid_of(known) if is_newer(object_, known) else uid)
        if uid not in self._gone and self._covers(object_):
            self._take(ref, object_)

    def observe_gone(self, ref: ObjectRef, uid: str) -> None:
        """Take in that the API answered that nothing with `uid` has the name `ref`, any more."""
        self._moment += 1
        self._gone[uid] = self._moment
        self._gone.move_to_end(uid)
        _trim(self._gone, _MAX_GONE)
        known = self._objects.get(ref)
        if known is not None and uid_of(known) == uid:
            self._drop(ref)

    def upsert(self, object_: Object) -> None:
        """Take in a state that the watch tells; an older one than known is ignored."""
        uid = uid_of(object_)
        if uid not in self._gone:
            self._deleted.pop(uid, None)
            self._take(ref_of(self.type, object_), object_)

    def remove(self, object_: Object) -> None:
        """Take in a deletion that the watch tells; the name may have been taken anew since."""
        ref = ref_of(self.type, object_)
        known = self._objects.get(ref)
        self._gone.pop(uid_of(object_), None)
        self._bury(uid_of(object_))
        if known is not None and not (
            uid_of(known) != uid_of(object_) and is_newer(known, object_)
        ):
            self._drop(ref)

    def succeed(self, successor: Object) -> None:
        """Take in that an object, of which only metadata is known, has its name now."""
        ref, uid = ref_of(self.type, successor), uid_of(successor)
        known = self._objects.get(ref)
        if known is not None and uid not in ("", uid_of(known)) and is_newer(successor, known):
            self._bury(uid_of(known))
            self._drop(ref)

    def replace(
        self,
        objects: Iterable[Object],
        resource_version: str,
        *,
        asked: int,
        rewound: bool,
        unreadable: Collection[ObjectRef] = (),
    ) -> None:
        """Take in a list: changes, and deletions of what it no longer has.

        Args:
            resource_version: of the list; what was written after it is kept
            asked: `moment` before the list was asked for. It does not bring back what an answer
                told to be gone since. What it has of the others is there again (restored from a
                backup).
            rewound: the server's history went back (restored from a backup): believe the list
            unreadable: what the list has, too, but nobody can read
        """
        listed = {
            ref_of(self.type, object_): object_
            for object_ in objects
            if self._gone.get(uid_of(object_), 0) <= asked
        }
        self._listed = resource_version
        self._catch_up(asked)
        present = {*listed, *unreadable}
        for ref, known in list(self._objects.items()):
            if ref not in present and (rewound or not _is_after(known, resource_version)):
                self._bury(uid_of(known))
                self._drop(ref)
        for ref, object_ in listed.items():
            if rewound and self._objects.get(ref) != object_:
                self._put(ref, object_)
            elif not rewound:
                self.upsert(object_)

    def _catch_up(self, asked: int) -> None:
        """What comes after a list tells nothing of what was gone before the list was asked for."""
        while self._gone and next(iter(self._gone.values())) <= asked:
            uid, _ = self._gone.popitem(last=False)
            self._bury(uid)

    def _covers(self, object_: Object) -> bool:
        """Whether the watch tells of it; what the watch does not tell of would stay for ever."""
        key, _, value = self._label.partition("=")
        return not key or (object_["metadata"].get("labels") or {}).get(key) == value

    def _take(self, ref: ObjectRef, object_: Object) -> None:
        known = self._objects.get(ref)
        if known is None or is_newer(object_, known):
            self._put(ref, object_)

    def _put(self, ref: ObjectRef, object_: Object) -> None:
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
        self._deleted[uid] = None
        self._deleted.move_to_end(uid)
        _trim(self._deleted, _MAX_DELETED)

    def _sorted(self, refs: Iterable[ObjectRef]) -> tuple[Object, ...]:
        ordered = sorted(refs, key=lambda ref: (ref.namespace, ref.name))
        return tuple(self._objects[ref] for ref in ordered)


def _trim(uids: OrderedDict[str, Any], at_most: int) -> None:
    """Forget the oldest."""
    while len(uids) > at_most:
        uids.popitem(last=False)


def _version(object_: Object) -> str:
    return str(object_["metadata"].get("resourceVersion", ""))


def _is_after(object_: Object, resource_version: str) -> bool:
    version = _version(object_)
    return _are_numbers(version, resource_version) and int(version) > int(resource_version)


def _is_until(object_: Object, resource_version: str) -> bool:
    version = _version(object_)
    return _are_numbers(version, resource_version) and int(version) <= int(resource_version)


def _are_numbers(*versions: str) -> bool:
    return all(version.isdecimal() for version in versions)
