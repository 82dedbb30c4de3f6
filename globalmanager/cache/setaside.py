"""The unreadable objects of one collection, by name.

It keeps only names and problems, never contents.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from edgeai.api.resources import ObjectRef, ResourceType
from edgeai.kube.objects import Unreadable

MAX_SET_ASIDE: Final = 1000
"""Largest number of objects whose names are kept. Names, uid and problem of one have at most 1 KiB,
because the API server limits names. Further unreadable objects stay out of the store too, but
nothing counts them. Namespaces have equal parts, so the objects of one hide no object of another.
"""


class SetAside:
    def __init__(self, type_: ResourceType) -> None:
        self._type = type_
        self._unreadable: dict[ObjectRef, Unreadable] = {}
        self._by_namespace: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._unreadable)

    def __iter__(self) -> Iterator[Unreadable]:
        return iter(tuple(self._unreadable.values()))

    def __contains__(self, ref: ObjectRef) -> bool:
        return ref in self._unreadable

    def add(self, object_: Unreadable) -> bool:
        """Set an object aside. Returns: whether it is new or its problem has changed"""
        ref = object_.ref(self._type)
        old = self._unreadable.get(ref)
        if old is None and not self._has_capacity(ref.namespace):
            return False
        self._by_namespace[ref.namespace] += old is None
        self._unreadable[ref] = object_
        return old is None or (old.uid, old.problem) != (object_.uid, object_.problem)

    def _has_capacity(self, namespace: str) -> bool:
        """Whether one more object has a place. If need be, the largest namespace loses one."""
        if len(self._unreadable) < MAX_SET_ASIDE:
            return True
        ((largest, count),) = self._by_namespace.most_common(1)
        if count <= self._by_namespace[namespace] + 1:
            return False
        self.discard(next(ref for ref in reversed(self._unreadable) if ref.namespace == largest))
        return True

    def discard(self, ref: ObjectRef) -> None:
        if self._unreadable.pop(ref, None) is None:
            return
        self._by_namespace[ref.namespace] -= 1
        if not self._by_namespace[ref.namespace]:
            del self._by_namespace[ref.namespace]

    def retain(self, objects: Iterable[Unreadable]) -> None:
        refs = {object_.ref(self._type) for object_ in objects}
        for ref in self._unreadable.keys() - refs:
            self.discard(ref)
