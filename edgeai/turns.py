"""Items that wait, by namespace. Namespaces take turns, so a namespace with many items delays the
items of another namespace by one item at a time.

Pure: no I/O, no clock.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """Items of one namespace keep their order."""

    def __init__(self) -> None:
        # Namespaces with items, the one whose turn it is first.
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, namespace: str, item: T) -> None:
        """Let an item wait as the last of its namespace."""
        self._waiting.setdefault(namespace, deque()).append(item)
        self._size += 1

    def pop(self) -> T:
        """Take the first item of the namespace whose turn it is. One must wait."""
        namespace, items = next(iter(self._waiting.items()))
        item = items.popleft()
        self._size -= 1
        if items:
            self._waiting.move_to_end(namespace)
        else:
            del self._waiting[namespace]
        return item

    def waiting(self, namespace: str) -> int:
        """The number of items of one namespace."""
        return len(self._waiting.get(namespace, ()))

    def heads(self) -> Iterator[T]:
        """The first item of each namespace."""
        return (items[0] for items in self._waiting.values())

    def clear(self) -> None:
        self._waiting.clear()
        self._size = 0
