"""The recent changes of one resource, and watches over them.

A watch is a position in a list of records that has a fixed limit. A watch has no queue of its own,
so slow watchers cost no memory. A watch that falls behind the oldest record must list again (410).
"""

import asyncio
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
    resource_version: int


class Record(msgspec.Struct, frozen=True):
    """One committed change. `before` is None for a new object."""

    type: EventType
    resource_version: int
    namespace: str
    body: bytes
    after: Selectable
    before: Selectable | None

    def event_type(self, selector: Selector) -> EventType | None:
        """The event that a watcher with this selector gets for the change.

        Returns: None if the watcher gets no event
        """
        matched = self.before is not None and selector.matches(self.before)
        matches = self.type != "DELETED" and selector.matches(self.after)
        if matches:
            return "MODIFIED" if matched else "ADDED"
        return "DELETED" if matched else None


class History:
    """The newest records of one resource, at most `limit` records."""

    def __init__(self, limit: int, resource_version: int) -> None:
        self._records: deque[Record] = deque()
        self._limit = limit
        self._first = 0  # sequence number of the oldest record
        self._forgotten = resource_version  # resource version of the newest dropped record
        self._watches: set[Watch] = set()

    @property
    def end(self) -> int:
        """The sequence number that the next record will get."""
        return self._first + len(self._records)

    def append(self, record: Record) -> None:
        self._records.append(record)
        if len(self._records) > self._limit:
            self._forgotten = self._records.popleft().resource_version
            self._first += 1
        for watch in self._watches:
            watch.wake()

    def record(self, sequence: int) -> Record:
        """The record with this sequence number. Raises: errors.Gone when the record was dropped"""
        if sequence < self._first:
            raise errors.Gone("too old resource version: the watch is too slow; list again")
        return self._records[sequence - self._first]

    def after(self, resource_version: int) -> int:
        """The sequence number of the first record after a resource version.

        Raises: errors.Gone when a record after this version was dropped
        """
        self.check(resource_version)
        sequence = self.end
        for record in reversed(self._records):
            if record.resource_version <= resource_version:
                break
            sequence -= 1
        return sequence

    def check(self, resource_version: int) -> None:
        """Check that the history has all changes since a resource version.

        Raises: errors.Gone when a change since this version was dropped
        """
        if resource_version < self._forgotten:
            raise errors.Gone(
                f"too old resource version: {resource_version} ({self._forgotten}); list again"
            )

    def add_watch(self, watch: "Watch") -> None:
        self._watches.add(watch)

    def remove_watch(self, watch: "Watch") -> None:
        self._watches.discard(watch)

    def close(self) -> None:
        for watch in tuple(self._watches):
            watch.close()


class Watch:
    """Async iterator over the events of one watcher.

    The iterator ends when the watch is closed. It raises errors.Gone when the watch falls behind
    the oldest record. `close()` releases the watch. When a caller cancels a pending
    `anext`, no event is lost.
    """

    def __init__(
        self,
        history: History,
        cursor: int,
        *,
        resource: Resource,
        namespace: str,
        selector: Selector,
        initial: Iterable[Event],
        version: Callable[[], int],
    ) -> None:
        self._history = history
        self._cursor = cursor
        self._resource = resource  # the version that the watcher asked for
        self._namespace = namespace
        self._selector = selector
        self._initial = deque(initial)
        self._version = version
        self._wake = asyncio.Event()
        self._closed = False
        history.add_watch(self)

    @property
    def is_caught_up(self) -> bool:
        """Whether the watcher has received every change so far."""
        return not self._initial and self._cursor >= self._history.end

    @property
    def resource_version(self) -> int:
        """The resource version from which a new watch can continue, if this watch is caught up."""
        return self._version()

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._history.remove_watch(self)
        self._wake.set()

    def poll(self) -> Event | None:
        """The next event; None if there is no event now. Does not wait.

        Raises: errors.Gone
        """
        if self._initial:
            return self._initial.popleft()
        while self._cursor < self._history.end:
            record = self._history.record(self._cursor)
            self._cursor += 1
            if event := self._seen(record):
                return event
        return None

    def _seen(self, record: Record) -> Event | None:
        if self._namespace not in ("", record.namespace):
            return None
        type_ = record.event_type(self._selector)
        if type_ is None:
            return None
        object_ = msgspec.json.decode(record.body)
        object_["apiVersion"] = self._resource.group_version
        return Event(type_, object_, record.resource_version)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._closed:
            self._wake.clear()
            if event := self.poll():
                return event
            await self._wake.wait()
        raise StopAsyncIteration
