"""The objects of one collection that cannot be read, by name, until they can or are gone.

Kept by `informer`; shown by health and metrics. Nothing here keeps what the objects hold.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from globalmanager.contract import ObjectRef, ResourceType
from globalmanager.kube.objects import Unreadable

MAX_SET_ASIDE: Final = 1000
"""Objects that are known by name: some 500 KiB. Others are left out all the same, uncounted."""


class SetAside:
    def __init__(self, type_: ResourceType) -> None:
        self._type = type_
        self._by_ref: dict[ObjectRef, Unreadable] = {}

    def __len__(self) -> int:
        return len(self._by_ref)

    def __iter__(self) -> Iterator[Unreadable]:
        return iter(tuple(self._by_ref.values()))

    def __contains__(self, ref: ObjectRef) -> bool:
        return ref in self._by_ref

    def add(self, object_: Unreadable) -> bool:
        """Returns: whether this is news, of an object or of its fault"""
        ref = object_.ref(self._type)
        known = self._by_ref.get(ref)
        if known is None and len(self._by_ref) >= MAX_SET_ASIDE:
            return False
        self._by_ref[ref] = object_
        return known is None or (known.uid, known.problem) != (object_.uid, object_.problem)

    def discard(self, ref: ObjectRef) -> None:
        """It can be read, or is gone."""
        self._by_ref.pop(ref, None)

    def retain(self, objects: Iterable[Unreadable]) -> None:
        """Discard all but these."""
        kept = {object_.ref(self._type) for object_ in objects}
        for ref in self._by_ref.keys() - kept:
            del self._by_ref[ref]
