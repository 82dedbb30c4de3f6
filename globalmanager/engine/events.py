"""Records Kubernetes Events about job resources and nodes, and counts repeated Events.

`record` never waits and never fails. When too many Events wait, `pending_events` decides which give
way. An Event that the API refuses is dropped, so no other part may depend on an Event.
"""

import asyncio
import hashlib
from collections import OrderedDict
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from common import logs
from common.clock import SYSTEM_CLOCK, Clock
from common.ratelimit import TokenBucket
from edgeai.api.resources import Object, ObjectRef, ResourceType
from edgeai.errors import EdgeAIError, Unavailable
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import AlreadyExists, NotFound
from edgeai.text import printable
from edgeai.times import rfc3339
from globalmanager.contract import Event
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.pending_events import PendingEvent, PendingEvents, Subject

log = logs.get_logger(__name__)

EVENTS: Final = ResourceType("", "v1", "events", "Event")
COMPONENT: Final = "edgeai-globalmanager"
COUNTED_S: Final = 120.0
"""How long a count stays in memory. Another replica may raise it meanwhile. The same words come
again soon, after the backoff of a job, or seldom. Then one more request reads the count."""
MAX_COUNTS: Final = 4096  # largest number of Events whose counts are in memory
_MAX_MESSAGE_CHARS: Final = 1024  # the API server refuses longer messages


class SentCounts:
    """The counts that the Events in the API have, as far as this process has sent them lately.

    Jobs that come and go have Events of their own, so the counts must not stay.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Event -> count, and when the Event was sent; the newest last
        self._counts: OrderedDict[ObjectRef, tuple[int, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def get(self, ref: ObjectRef) -> int | None:
        count = self._counts.get(ref)
        return None if count is None else count[0]

    def put(self, ref: ObjectRef, count: int) -> None:
        now = self._clock.elapsed()
        self._counts[ref] = count, now
        self._counts.move_to_end(ref)
        while len(self._counts) > MAX_COUNTS or self._oldest_at() < now - COUNTED_S:
            self._counts.popitem(last=False)

    def _oldest_at(self) -> float:
        return next(iter(self._counts.values()))[1]


class Recorder:
    """Sends Events to the Kubernetes API, from a bounded queue and at a bounded rate.

    Args: retry_s: pause after the API was not available
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        metrics: EngineMetrics | None = None,
        clock: Clock = SYSTEM_CLOCK,
        qps: float = 10.0,
        burst: int = 100,
        retry_s: float = 5.0,
    ) -> None:
        self._client = client
        self._clock = clock
        self._dropped = (metrics or EngineMetrics(CollectorRegistry())).events_dropped
        self._retry_s = retry_s
        # Events have a request rate of their own, and use up none of that of the plans.
        self._bucket = TokenBucket(qps=qps, burst=burst)
        self._pending = PendingEvents()
        self._counts = SentCounts(clock)
        self._wake = asyncio.Event()

    def record(self, about: Object, event: Event) -> None:
        """Queue `event` about the object `about`. Equal events become one Event with a count."""
        ref = event_ref(about, event)
        message = printable(event.message)[:_MAX_MESSAGE_CHARS]
        event = msgspec.structs.replace(event, message=message)
        pending = PendingEvent(Subject.of(about), event, ref)
        self._dropped.inc(self._pending.add(pending))
        self._wake.set()

    async def run(self) -> None:
        """Send the queued Events until this task is cancelled."""
        while True:
            self._wake.clear()
            while self._pending:
                await self._bucket.acquire()
                await self._send(self._pending.pop())
            await self._wake.wait()

    async def _send(self, pending: PendingEvent) -> None:
        ref = pending.ref
        try:
            self._counts.put(ref, await self._write(ref, pending))
        except Unavailable:
            self._dropped.inc(self._pending.put_back(pending))
            await asyncio.sleep(self._retry_s)
        except EdgeAIError as error:
            log.warning("event dropped", resource=str(ref), problem=str(error))
            self._dropped.inc()
        except Exception:
            log.exception("event dropped", resource=str(ref))
            self._dropped.inc()

    async def _write(self, ref: ObjectRef, pending: PendingEvent) -> int:
        """Create the Event, or raise its count. Returns: the count that the API has now"""
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
            patch = {"count": count, "lastTimestamp": rfc3339(self._clock.utcnow())}
            await self._client.merge_patch(ref, patch)
        except NotFound:  # the API server deletes an Event after an hour
            await self._client.create(EVENTS, self._body(ref, pending))
            return pending.times
        return count

    def _body(self, ref: ObjectRef, pending: PendingEvent) -> Object:
        subject = pending.subject
        now = rfc3339(self._clock.utcnow())
        return {
            "metadata": {"name": ref.name, "namespace": ref.namespace},
            "involvedObject": {
                "apiVersion": subject.api_version,
                "kind": subject.kind,
                "namespace": subject.namespace,
                "name": subject.name,
                "uid": subject.uid,
            },
            "type": pending.event.severity.value,
            "reason": pending.event.reason,
            "message": pending.event.message,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": COMPONENT,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": pending.times,
        }


def event_ref(about: Object, event: Event) -> ObjectRef:
    """The name of the Event about an object: a hash of its uid and the event's words. So an equal
    event has the same name after a retry or a restart, and its count is raised.
    """
    metadata = about["metadata"]
    words = "\0".join((metadata.get("uid", ""), event.severity.value, event.reason, event.message))
    digest = hashlib.sha256(words.encode()).hexdigest()[:16]
    namespace = metadata.get("namespace") or "default"
    return ObjectRef(EVENTS, namespace, f"{metadata['name'][:230]}.{digest}")
