"""The unreadable objects of one collection, by name.

`informer` sets an object aside while the object cannot be read and still exists. Health and metrics
show these objects. This module keeps only names and problems, never contents.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from globalmanager.contract import ObjectRef, ResourceType
from globalmanager.kube.objects import Unreadable

MAX_SET_ASIDE: Final = 1000
"""Largest number of objects whose names are kept, about 500 KiB. Further unreadable objects stay
out of the store too, but nothing counts them."""


class SetAside:
    def __init__(self, type_: ResourceType) -> None:
        self._type = type_
        self._unreadable: dict[ObjectRef, Unreadable] = {}

    def __len__(self) -> int:
        return len(self._unreadable)

    def __iter__(self) -> Iterator[Unreadable]:
        return iter(tuple(self._unreadable.values()))

    def __contains__(self, ref: ObjectRef) -> bool:
        return ref in self._unreadable

    def add(self, object_: Unreadable) -> bool:
        """Set an object aside.

        Returns: whether the object is new or its problem has changed
        """
        ref = object_.ref(self._type)
        known = self._unreadable.get(ref)
        if known is None and len(self._unreadable) >= MAX_SET_ASIDE:
            return False
        self._unreadable[ref] = object_
        return known is None or (known.uid, known.problem) != (object_.uid, object_.problem)

    def discard(self, ref: ObjectRef) -> None:
        """Forget an object that is readable again or gone."""
        self._unreadable.pop(ref, None)

    def retain(self, objects: Iterable[Unreadable]) -> None:
        """Forget all objects except these."""
        kept = {object_.ref(self._type) for object_ in objects}
        for ref in self._unreadable.keys() - kept:
            del self._unreadable[ref]
