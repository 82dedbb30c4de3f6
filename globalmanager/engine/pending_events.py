"""The Events that wait to be sent, bounded, with the last word on each object kept.

Pure: no I/O, no clock. While there is room, every Event waits. When too many wait, the objects with
several waiting Events give up old ones: a newer Event of the same object and reason counts for the
old Event. When there is no such newer Event, the oldest Event of the object is dropped. The newest
Event of an object never gives way to an Event of another object.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

import msgspec

from edgeai.api.resources import Object, ObjectRef
from globalmanager.contract import Event

MAX_WAITING: Final = 1000
MAX_OBJECTS: Final = 10_000
"""When more objects wait, the next Event is dropped. An Event takes 2 KiB, and 6 KiB at most."""


class Subject(NamedTuple):
    """The object that an Event is about. The whole object may be large, so it does not wait."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, object_: Object) -> "Subject":
        metadata = object_["metadata"]
        namespace, uid = metadata.get("namespace", ""), metadata.get("uid", "")
        return cls(object_["apiVersion"], object_["kind"], namespace, metadata["name"], uid)


class PendingEvent(msgspec.Struct):
    """An Event that waits to be sent for the first time, or again with a higher count."""

    subject: Subject
    event: Event
    ref: ObjectRef
    """The name of the Event in the API. Equal Events about one object have the same name."""
    times: int = 1
    """How often the Event happened since it was last sent."""


_Waiting = OrderedDict[ObjectRef, PendingEvent]  # the Events of one object, the newest last


class PendingEvents:
    """Waiting Events by object. Objects take turns, so one with many Events delays no other long.

    Args: max_waiting: largest number of Events, as long as an object has more than one
    """

    def __init__(self, *, max_waiting: int = MAX_WAITING) -> None:
        self._max_waiting = max_waiting
        self._objects: OrderedDict[Subject, _Waiting] = OrderedDict()  # whose turn it is, first
        self._crowded: OrderedDict[Subject, None] = OrderedDict()  # objects with several Events
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, pending: PendingEvent) -> int:
        """Let an Event wait as the newest of its object. Returns: how many Events were dropped"""
        queue = self._objects.setdefault(pending.subject, OrderedDict())
        earlier = queue.pop(pending.ref, None)
        if earlier is not None:
            pending.times += earlier.times
        else:
            self._size += 1
        queue[pending.ref] = pending
        self._note_size(pending.subject)
        return self._evict(pending.subject)

    def put_back(self, pending: PendingEvent) -> int:
        """Let an Event wait again, as the oldest of its object. Returns: as `add`"""
        queue = self._objects.setdefault(pending.subject, OrderedDict())
        newer = queue.get(pending.ref)
        if newer is not None:
            newer.times += pending.times
            return 0
        self._size += 1
        queue[pending.ref] = pending
        queue.move_to_end(pending.ref, last=False)
        self._objects.move_to_end(pending.subject, last=False)
        self._note_size(pending.subject)
        return self._evict(pending.subject)

    def pop(self) -> PendingEvent:
        """Take the oldest Event of the object whose turn it is. One must wait."""
        subject = next(iter(self._objects))
        pending = self._remove(subject, next(iter(self._objects[subject])))
        if subject in self._objects:
            self._objects.move_to_end(subject)
        return pending

    def _evict(self, newest: Subject) -> int:
        """Returns: how many Events were dropped, 0 or 1"""
        if self._size <= self._max_waiting:
            return 0
        if self._crowded:
            crowded = newest if newest in self._crowded else next(iter(self._crowded))
            return self._thin_out(crowded)
        if len(self._objects) <= MAX_OBJECTS:
            return 0
        oldest = next(iter(self._objects))
        self._remove(oldest, next(iter(self._objects[oldest])))
        return 1

    def _thin_out(self, subject: Subject) -> int:
        """Remove one Event of an object with several, but not the newest. Returns: how many were
        dropped; 0 when a newer Event of the same reason counts for the removed one.
        """
        queue = self._objects[subject]
        newest: dict[str, PendingEvent] = {event.event.reason: event for event in queue.values()}
        for ref, event in queue.items():
            newer = newest[event.event.reason]
            if newer is not event:
                newer.times += event.times
                self._remove(subject, ref)
                return 0
        self._remove(subject, next(iter(queue)))
        return 1

    def _remove(self, subject: Subject, ref: ObjectRef) -> PendingEvent:
        queue = self._objects[subject]
        pending = queue.pop(ref)
        self._size -= 1
        if not queue:
            del self._objects[subject]
        self._note_size(subject)
        return pending

    def _note_size(self, subject: Subject) -> None:
        if len(self._objects.get(subject, ())) > 1:
            self._crowded.setdefault(subject)
        else:
            self._crowded.pop(subject, None)
