"""The recent changes of one resource, and watches over them.

A watch is a position in a list of records that has a fixed limit. A watch has no queue of its own,
so slow watchers cost no memory. A watch that falls behind the oldest record must list again (410).
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal, Self

import msgspec

from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.resources import Object, Resource
from edgeai.localcluster.objects.selectors import Selectable, Selector

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class Event(msgspec.Struct, frozen=True):
    """One change of one object, as a watcher sees this change. The watcher gets a copy."""

    type: EventType
    object: Object


class Record(msgspec.Struct, frozen=True):
    """One committed change. `before` is None for a new object."""

    type: EventType
    resource_version: int
    namespace: str
    body: bytes
    after: Selectable
    before: Selectable | None

    def event_type(self, selector: Selector) -> EventType | None:
        """The event that a watcher with this selector gets; None: it gets none."""
        matched = self.before is not None and selector.matches(self.before)
        matches = self.type != "DELETED" and selector.matches(self.after)
        if matches:
            return "MODIFIED" if matched else "ADDED"
        return "DELETED" if matched else None


class History:
    """The newest records of one resource, at most `limit` records."""

    def __init__(self, limit: int, resource_version: int) -> None:
        self._records: list[Record] = []  # in the order of their resource versions
        self._limit = limit
        self._forgotten = resource_version  # resource version of the newest dropped record
        self.watches: set[Watch] = set()

    def append(self, record: Record) -> None:
        self._records.append(record)
        if len(self._records) > self._limit:
            self._forgotten = self._records.pop(0).resource_version
        for watch in self.watches:
            watch.wake()

    def after(self, resource_version: int) -> Record | None:
        """The first record after a resource version; None if there is none.

        Raises: errors.Gone when a record after this version was dropped
        """
        self.check(resource_version)
        index = bisect_right(self._records, resource_version, key=lambda r: r.resource_version)
        return self._records[index] if index < len(self._records) else None

    def check(self, resource_version: int) -> None:
        """Raises: errors.Gone when a change since this version was dropped"""
        if resource_version < self._forgotten:
            raise errors.Gone(
                f"too old resource version: {resource_version} ({self._forgotten}): the watch is"
                " too slow, or begins too early; list again"
            )


class Watch:
    """Async iterator over the events of one watcher.

    The iterator ends when the watch is closed. It raises errors.Gone when the watch falls behind
    the oldest record. `close()` releases the watch. A cancelled `anext` loses no event.

    Args:
        since: the resource version after which the watch begins
        resource: the version that the watcher asked for
        version: returns the resource version of the latest change of any resource
    """

    def __init__(
        self,
        history: History,
        since: int,
        *,
        resource: Resource,
        namespace: str,
        selector: Selector,
        initial: Iterable[Event],
        version: Callable[[], int],
    ) -> None:
        self._history = history
        self._seen = since  # resource version of the last record that the watch has examined
        self._resource = resource
        self._namespace = namespace
        self._selector = selector
        self._initial = deque(initial)
        self._version = version
        self._wake = asyncio.Event()
        self._closed = False
        history.watches.add(self)

    @property
    def is_caught_up(self) -> bool:
        """Whether the watcher has received every change so far. Raises: errors.Gone"""
        return not self._initial and self._history.after(self._seen) is None

    @property
    def resource_version(self) -> int:
        """The resource version from which a new watch can continue, if this watch is caught up."""
        return self._version()

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._history.watches.discard(self)
        self._wake.set()

    def poll(self) -> Event | None:
        """The next event; None if there is none now. Raises: errors.Gone"""
        if self._initial:
            return self._initial.popleft()
        while record := self._history.after(self._seen):
            self._seen = record.resource_version
            if event := self._event(record):
                return event
        return None

    def _event(self, record: Record) -> Event | None:
        if self._namespace not in ("", record.namespace):
            return None
        type_ = record.event_type(self._selector)
        if type_ is None:
            return None
        object_ = msgspec.json.decode(record.body)
        object_["apiVersion"] = self._resource.group_version
        return Event(type_, object_)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._closed:
            self._wake.clear()
            if event := self.poll():
                return event
            await self._wake.wait()
        raise StopAsyncIteration
