"""Records Kubernetes Events beside the resource that they are about, and counts repeats.

`record` is called by apply and by the edge server, never waits and never fails; `run`, a task of
the engine, sends. An Event that cannot be sent is dropped: nothing may depend on one.
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
_MAX_PENDING: Final = 1000
_MAX_KNOWN: Final = 4096
_MAX_MESSAGE_CHARS: Final = 1024  # what the API accepts


class _Pending:
    """An Event that is to be sent, or sent again with a higher count."""

    def __init__(self, about: Object, event: Event) -> None:
        self.about, self.event = about, event
        self.times = 0  # since it was last sent


class Recorder:
    """Bounded: so many Events wait, so many counts are remembered, so many a second are sent.

    Args:
        now: UTC
        on_drop: called for each Event that will not be recorded
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
        # A bucket of its own: Events never use up the budget of the reconciler.
        self._bucket = TokenBucket(qps=qps, burst=burst)
        self._pending: OrderedDict[ObjectRef, _Pending] = OrderedDict()
        self._counts: OrderedDict[ObjectRef, int] = OrderedDict()  # as the API has them
        self._wake = asyncio.Event()

    def record(self, about: Object, event: Event) -> None:
        """Have `event` recorded for the object `about`; equal ones are one Event with a count."""
        ref = event_ref(about, event)
        if ref not in self._pending and len(self._pending) >= _MAX_PENDING:
            self._on_drop()
            return
        self._pending.setdefault(ref, _Pending(about, event)).times += 1
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wake.clear()
            while self._pending:
                await self._bucket.acquire()
                ref, pending = self._pending.popitem(last=False)
                await self._send(ref, pending)
            await self._wake.wait()

    async def _send(self, ref: ObjectRef, pending: _Pending) -> None:
        try:
            self._remember(ref, await self._write(ref, pending))
        except Unavailable:
            self._put_back(ref, pending)
            await asyncio.sleep(self._retry_s)
        except EdgeAIError as error:
            log.warning("event dropped", resource=str(ref), problem=str(error))
            self._on_drop()
        except Exception:
            log.exception("event dropped", resource=str(ref))
            self._on_drop()

    async def _write(self, ref: ObjectRef, pending: _Pending) -> int:
        """The count that the API has now."""
        known = self._counts.get(ref)
        if known is None:
            try:
                await self._client.create(EVENTS, self._body(ref, pending))
            except AlreadyExists:  # recorded before this process started
                known = int((await self._client.get(ref)).get("count") or 1)
            else:
                return pending.times
        count = known + pending.times
        try:
            patch = {"count": count, "lastTimestamp": rfc3339(self._now())}
            await self._client.merge_patch(ref, patch)
        except NotFound:  # the API forgets Events after an hour
            await self._client.create(EVENTS, self._body(ref, pending))
            return pending.times
        return count

    def _body(self, ref: ObjectRef, pending: _Pending) -> Object:
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

    def _remember(self, ref: ObjectRef, count: int) -> None:
        self._counts[ref] = count
        self._counts.move_to_end(ref)
        if len(self._counts) > _MAX_KNOWN:
            self._counts.popitem(last=False)

    def _put_back(self, ref: ObjectRef, pending: _Pending) -> None:
        newer = self._pending.get(ref)
        if newer is not None:
            newer.times += pending.times
        elif len(self._pending) < _MAX_PENDING:
            self._pending[ref] = pending
        else:
            self._on_drop()


def event_ref(about: Object, event: Event) -> ObjectRef:
    """Same object, same words: same name, so that a retry or a restart makes no twin."""
    metadata = about["metadata"]
    told = "\0".join((metadata.get("uid", ""), event.severity.value, event.reason, event.message))
    digest = hashlib.sha256(told.encode()).hexdigest()[:16]
    namespace = metadata.get("namespace") or "default"
    return ObjectRef(EVENTS, namespace, f"{metadata['name'][:230]}.{digest}")
