"""The children of one type from several stores, as if the stores were one.

One store has the children that edgeai made. Each further store has the children that another
controller made before edgeai, and that carry a label which a kind follows. The selectors exclude
each other, but a child that changes its labels may be in two stores for a moment.
"""

from collections.abc import Callable, Sequence

from edgeai.api.resources import Object, ObjectRef, ResourceType, ref_of
from globalmanager.cache.store import Store, is_newer, uid_of


class Followed:
    """The children of one type. Args: stores: the store of edgeai's own children first"""

    def __init__(self, stores: Sequence[Store]) -> None:
        self._stores = tuple(stores)
        self._own, *self._others = stores

    @property
    def type(self) -> ResourceType:
        return self._own.type

    def get(self, ref: ObjectRef) -> Object | None:
        objects = [object_ for store in self._stores if (object_ := store.get(ref)) is not None]
        return _newest(objects) if objects else None

    def list(self, namespace: str = "") -> tuple[Object, ...]:
        """The objects of all namespaces, or of one, each once."""
        by_ref = {
            ref_of(self.type, object_): object_
            for store in self._stores
            for object_ in store.list(namespace)
        }
        return tuple(by_ref.values())

    def find(self, index: str, key: str) -> tuple[Object, ...]:
        """The objects under `key` of `index`, each once."""
        if not self._others:
            return self._own.find(index, key)
        by_ref: dict[ObjectRef, list[Object]] = {}
        for store in self._stores:
            for object_ in store.find(index, key):
                by_ref.setdefault(ref_of(self.type, object_), []).append(object_)
        return tuple(map(_newest, by_ref.values()))

    def observe(self, object_: Object) -> None:
        """Record an object from an answer of the API."""
        # A store of others' children takes only what it has, as its watch brings the other objects.
        self._own.observe(object_)
        for store in self._others:
            if store.get(ref_of(self.type, object_)) is not None:
                store.observe(object_)

    def observe_gone(self, ref: ObjectRef, uid: str) -> None:
        """Record the API's answer that the object with this name and uid no longer exists."""
        entries = {store: store.get(ref) for store in self._stores}
        stores = [store for store, one in entries.items() if one is not None and uid_of(one) == uid]
        for store in stores or [self._own]:
            store.observe_gone(ref, uid)


def _newest(states: Sequence[Object]) -> Object:
    newest = states[0]
    for state in states[1:]:
        newest = state if is_newer(state, newest) else newest
    return newest


CacheOf = Callable[[ResourceType], Store | Followed]
"""Type -> where the objects of this type are cached."""
