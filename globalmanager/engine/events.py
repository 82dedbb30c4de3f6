"""Records Kubernetes Events about job resources and nodes, and counts repeated Events.

apply and loop call `record`, which never waits and never fails. The engine's task `run` sends the
Events to the Kubernetes API. The recorder drops an Event that the API refuses, so no other part may
depend on an Event.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from common import logs
from common.errors import EdgeAIError, Unavailable
from common.ratelimit import TokenBucket
from common.times import rfc3339
from globalmanager.contract import Event, Object, ObjectRef, ResourceType
from globalmanager.kube.client import KubeClient
from globalmanager.kube.errors import AlreadyExists, NotFound

log = logs.get_logger(__name__)

EVENTS: Final = ResourceType("", "v1", "events", "Event")
COMPONENT: Final = "edgeai-globalmanager"
_MAX_PENDING: Final = 1000  # largest number of Events that wait to be sent
_MAX_COUNTS: Final = 4096  # largest number of Events whose counts are in memory
_MAX_MESSAGE_CHARS: Final = 1024  # the API server refuses longer messages


class _PendingEvent:
    """An Event that waits to be sent for the first time, or again with a higher count."""

    def __init__(self, about: Object, event: Event) -> None:
        self.about, self.event = about, event
        self.times = 0  # how often `record` was called since the Event was last sent


class Recorder:
    """Sends Events to the Kubernetes API, from a bounded queue and at a bounded rate.

    Args:
        now: UTC
        on_drop: called for each Event that the recorder drops
        qps, burst: rate of the Events that the recorder sends, per second
        retry_s: pause after the API was not available
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        on_drop: Callable[[], None] = lambda: None,
        qps: float = 5.0,
        burst: int = 50,
        retry_s: float = 5.0,
    ) -> None:
        self._client = client
        self._now = now
        self._on_drop = on_drop
        self._retry_s = retry_s
        # Events have a request rate of their own, so Events never use up the request rate of the
        # plans.
        self._bucket = TokenBucket(qps=qps, burst=burst)
        self._pending: OrderedDict[ObjectRef, _PendingEvent] = OrderedDict()
        self._counts: OrderedDict[ObjectRef, int] = OrderedDict()  # the counts in the API
        self._wake = asyncio.Event()

    def record(self, about: Object, event: Event) -> None:
        """Queue `event` about the object `about`. Equal events become one Event with a count."""
        ref = event_ref(about, event)
        if ref not in self._pending and len(self._pending) >= _MAX_PENDING:
            self._on_drop()
            return
        self._pending.setdefault(ref, _PendingEvent(about, event)).times += 1
        self._wake.set()

    async def run(self) -> None:
        """Send the queued Events until this task is cancelled."""
        while True:
            self._wake.clear()
            while self._pending:
                await self._bucket.acquire()
                ref, pending = self._pending.popitem(last=False)
                await self._send(ref, pending)
            await self._wake.wait()

    async def _send(self, ref: ObjectRef, pending: _PendingEvent) -> None:
        try:
            self._remember_count(ref, await self._write(ref, pending))
        except Unavailable:
            self._queue_again(ref, pending)
            await asyncio.sleep(self._retry_s)
        except EdgeAIError as error:
            log.warning("event dropped", resource=str(ref), problem=str(error))
            self._on_drop()
        except Exception:
            log.exception("event dropped", resource=str(ref))
            self._on_drop()

    async def _write(self, ref: ObjectRef, pending: _PendingEvent) -> int:
        """Create the Event, or raise the count of the existing Event.

        Returns: the count that the API has now
        """
        known = self._counts.get(ref)
        if known is None:
            try:
                await self._client.create(EVENTS, self._body(ref, pending))
            except AlreadyExists:  # the Event was recorded before this process started
                known = int((await self._client.get(ref)).get("count") or 1)
            else:
                return pending.times
        count = known + pending.times
        try:
            patch = {"count": count, "lastTimestamp": rfc3339(self._now())}
            await self._client.merge_patch(ref, patch)
        except NotFound:  # the API server deletes an Event after an hour
            await self._client.create(EVENTS, self._body(ref, pending))
            return pending.times
        return count

    def _body(self, ref: ObjectRef, pending: _PendingEvent) -> Object:
        metadata = pending.about["metadata"]
        now = rfc3339(self._now())
        return {
            "metadata": {"name": ref.name, "namespace": ref.namespace},
            "involvedObject": {
                "apiVersion": pending.about["apiVersion"],
                "kind": pending.about["kind"],
                "namespace": metadata.get("namespace", ""),
                "name": metadata["name"],
                "uid": metadata.get("uid", ""),
            },
            "type": pending.event.severity.value,
            "reason": pending.event.reason,
            "message": pending.event.message[:_MAX_MESSAGE_CHARS],
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": COMPONENT,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": pending.times,
        }

    def _remember_count(self, ref: ObjectRef, count: int) -> None:
        self._counts[ref] = count
        self._counts.move_to_end(ref)
        if len(self._counts) > _MAX_COUNTS:
            self._counts.popitem(last=False)

    def _queue_again(self, ref: ObjectRef, pending: _PendingEvent) -> None:
        newer = self._pending.get(ref)
        if newer is not None:
            newer.times += pending.times
        elif len(self._pending) < _MAX_PENDING:
            self._pending[ref] = pending
        else:
            self._on_drop()


def event_ref(about: Object, event: Event) -> ObjectRef:
    """The name of the Event about an object.

    The name is a hash of the object's uid and the event's words. So an equal event has the same
    name after a retry or a restart, and the recorder raises the count instead of creating a second
    Event.
    """
    metadata = about["metadata"]
    words = "\0".join((metadata.get("uid", ""), event.severity.value, event.reason, event.message))
    digest = hashlib.sha256(words.encode()).hexdigest()[:16]
    namespace = metadata.get("namespace") or "default"
    return ObjectRef(EVENTS, namespace, f"{metadata['name'][:230]}.{digest}")
