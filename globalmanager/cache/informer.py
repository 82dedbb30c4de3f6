"""Keeps a Store equal to a collection of the API: list once, then watch, and recover.

The engine runs one per type and selector. Every way in which a watch can go wrong ends in either
a new watch from the last resourceVersion or a new list, after a jittered backoff; none ends the
task. Behaves like client-go's reflector; paged lists and bookmarks are used.

A server has nothing to say in a watch of what does not change, not even bookmarks, so silence
tells nothing. But each watch is asked to end soon, and one that does not is dead. Sooner still a
watch is begun anew when the client has dialled the API server anew (ha.heartbeat).

An object that cannot be read is set aside and told; list and watch go on. Should the store have
an earlier state of it, that stays: nobody's workers are torn down for one bad edit.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import msgspec

from common import logs
from common.backoff import Backoff
from common.errors import EdgeAIError, Unavailable
from globalmanager.cache.setaside import SetAside
from globalmanager.cache.store import Store
from globalmanager.contract import Object, ResourceType, ref_of
from globalmanager.kube import errors
from globalmanager.kube.client import KubeClient
from globalmanager.kube.objects import NotReadable, Unreadable, WatchEvent, read, read_event

log = logs.get_logger(__name__)

_HEALTHY_WATCH_S: Final = 5.0
_WATCH_SPREAD: Final = 0.5  # the shortest watch, as a part of the longest: they end apart


class InformerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The reflector's times."""

    watch_s: float = 80.0
    """Longest time a watch is asked for: about one request a minute. A line that died without a
    word is found within this and the client's deadline."""
    backoff_base_s: float = 0.8
    backoff_max_s: float = 10.0
    """Less than client-go's 30 s, for which edges would have to wait after an outage."""
    absent_after_s: float = 5.0
    """A CRD's type that the server says for so long not to know is taken to be not installed. A
    server that has just started may deny types that it will serve in a moment; those that are built
    in it serves from the first moment or never."""


class _Versioned(msgspec.Struct, rename="camel"):
    resource_version: str


class _Bookmark(msgspec.Struct):
    """It has no name, only the version that the watch has come to."""

    metadata: _Versioned


class Informer:
    """One collection: a type, in one namespace or all, with a label selector or none.

    Args:
        on_settled: called once, when `settled` becomes true
        on_set_aside: told an object that cannot be read, once, and again for another reason
    """

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        *,
        namespace: str = "",
        label_selector: str = "",
        settings: InformerSettings | None = None,
        on_settled: Callable[[], None] = lambda: None,
        on_set_aside: Callable[[Unreadable], None] = lambda _object: None,
    ) -> None:
        self.store = store
        self.set_aside = SetAside(store.type)
        self.synced = False  # listed at least once
        self.absent = False  # the server does not serve the type (a CRD is not installed)
        self.problem = ""  # why the last attempt failed; "" while all is well
        self._client = client
        self._namespace = namespace if store.type.namespaced else ""
        self.label_selector = label_selector
        self._settings = settings or InformerSettings()
        self._on_settled = on_settled
        self._on_set_aside = on_set_aside
        self._logged = ""  # the problem; "" once a watch was accepted again
        self._backoff = Backoff(
            base_s=self._settings.backoff_base_s, max_s=self._settings.backoff_max_s
        )
        self._resource_version = ""  # where the next watch starts; "" demands a list
        self._newest_listed = 0  # to notice a server whose history went back
        self._heard_at = -math.inf
        self._owed_at = -math.inf  # from when on silence is no contact
        self._lost_at: float | None = None  # None while there is contact
        self._denied_at: float | None = None  # since when the type is said to be unknown

    @property
    def type(self) -> ResourceType:
        return self.store.type

    @property
    def settled(self) -> bool:
        """The store can be relied on: it was filled, or there is nothing it could hold."""
        return self.synced or self.absent

    def stale_for_s(self) -> float:
        """Seconds since contact with the API was lost, or since the start; 0 while there is."""
        return 0.0 if self._lost_at is None else _now() - self._lost_at

    def silent_for_s(self) -> float:
        """Seconds since the API was last heard of, which may have had nothing to say."""
        return _now() - self._heard_at

    async def run(self) -> None:
        """Until cancelled."""
        self._lost_at = _now()
        while True:
            retry_after_s = 0.0
            redialled = self._client.redialled
            try:
                await self._list_and_watch()
            except EdgeAIError as error:
                if not redialled.is_set():  # else it says nothing of the line of now
                    self._failed(error)
                retry_after_s = getattr(error, "retry_after_s", 0.0)
            except Exception as error:
                log.exception("informer failed, listing again", resource=str(self.type))
                self._fail(f"{type(error).__name__}: {error}", _now())
                self._resource_version = ""
            # Also after a watch that ended early, without an error: a server that ends each at
            # once would otherwise be asked in a hot loop.
            await self._pause(self._backoff.next_s(at_least_s=retry_after_s), redialled)

    async def _pause(self, seconds: float, redialled: asyncio.Event) -> None:
        """Until the next try. A new line is tried soon, by all informers with a jitter."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await redialled.wait()
            self._backoff.reset()
            await asyncio.sleep(self._backoff.next_s())

    async def _list_and_watch(self) -> None:
        if not self._resource_version:
            await self._list()
        while await self._watch():
            pass  # it ended as agreed: the next one goes on at once

    async def _list(self) -> None:
        self._owed_at = _now()
        asked = self.store.moment
        listing = await self._client.list(
            self.type, namespace=self._namespace, label_selector=self.label_selector
        )
        version = int(listing.resource_version) if listing.resource_version.isdecimal() else 0
        self.store.replace(
            listing.items,
            listing.resource_version,
            asked=asked,
            rewound=version < self._newest_listed,
            unreadable={object_.ref(self.type) for object_ in listing.unreadable},
        )
        self.set_aside.retain(listing.unreadable)
        for object_ in listing.unreadable:
            self._put_aside(object_)
        self._newest_listed = version
        self._resource_version = listing.resource_version
        self._succeeded()
        self._settle(absent=False)
        if not self._logged:  # who may list, but not watch, does so again and again
            log.info("listed", resource=str(self.type), objects=len(listing.items))

    async def _watch(self) -> bool:
        """Returns: whether it was kept up for long enough to be followed by another at once"""
        timeout_s = max(1, round(self._settings.watch_s * random.uniform(_WATCH_SPREAD, 1)))
        self._owed_at = _now()
        healthy_at = math.inf
        lines = self._client.watch_lines(
            self.type,
            resource_version=self._resource_version,
            timeout_s=timeout_s,
            namespace=self._namespace,
            label_selector=self.label_selector,
        )
        try:
            async with aclosing(lines):
                async for line in lines:
                    if line:
                        self._take(line)
                    else:  # accepted
                        self._logged = ""
                        self._owed_at = _now() + timeout_s
                        healthy_at = _now() + min(_HEALTHY_WATCH_S, timeout_s / 2)
                    self._succeeded()
        finally:
            if _now() >= healthy_at:
                self._backoff.reset()
        return _now() >= healthy_at

    def _take(self, line: bytes) -> None:
        try:
            event = read_event(line)
        except NotReadable as error:
            raise self._malformed(str(error)) from error
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=errors.Status)
            raise errors.from_status("watch", str(self.type), status)
        if event.type == "BOOKMARK":
            bookmark = msgspec.json.decode(event.object, type=_Bookmark)
            self._resource_version = bookmark.metadata.resource_version
        elif event.type in ("ADDED", "MODIFIED", "DELETED"):
            self._take_object(event)
        else:
            raise self._malformed(f"event of unknown type {event.type!r}")

    def _take_object(self, event: WatchEvent) -> None:
        object_ = read(event.object)
        if isinstance(object_, Unreadable):
            if not (object_.name and object_.resource_version):
                raise self._malformed(f"{event.type} event of an object without a name")
            if event.type == "DELETED":
                self._remove(object_.stub(self.type))
            else:
                self._put_aside(object_)
            self._resource_version = object_.resource_version
            return
        if event.type == "DELETED":
            self._remove(object_)
        else:
            self.set_aside.discard(ref_of(self.type, object_))
            self.store.upsert(object_)
        self._resource_version = object_["metadata"]["resourceVersion"]

    def _remove(self, object_: Object) -> None:
        self.set_aside.discard(ref_of(self.type, object_))
        self.store.remove(object_)

    def _put_aside(self, object_: Unreadable) -> None:
        ref = object_.ref(self.type)
        self.store.succeed(object_.stub(self.type))
        if self.set_aside.add(object_):
            log.warning("object set aside", resource=str(ref), problem=object_.problem)
            self._on_set_aside(object_)

    def _malformed(self, message: str) -> errors.Malformed:
        return errors.Malformed("watch", str(self.type), message=message)

    def _failed(self, error: EdgeAIError) -> None:
        since = max(self._heard_at, self._owed_at) if isinstance(error, errors.Silent) else _now()
        self._fail(str(error), since)
        self._note_denial(error)
        if isinstance(error, Unavailable) and not isinstance(error, errors.ServerError):
            return  # the watch goes on from where it was
        # Gone, and whatever else: only a list is sure to bring the store back in line.
        self._resource_version = ""

    def _note_denial(self, error: EdgeAIError) -> None:
        if not isinstance(error, errors.NotFound):
            self._denied_at = None
            return
        self._denied_at = self._denied_at if self._denied_at is not None else _now()
        patience_s = 0.0 if self.type.is_built_in else self._settings.absent_after_s
        if self.absent or _now() - self._denied_at >= patience_s:
            self._lost_at = None  # there is contact, and nothing to be had
            self._settle(absent=True)

    def _fail(self, problem: str, since: float) -> None:
        if problem != self._logged:
            log.warning("list or watch failed", resource=str(self.type), problem=problem)
        self.problem = self._logged = problem
        self._lost_at = since if self._lost_at is None else self._lost_at

    def _succeeded(self) -> None:
        self._heard_at = _now()
        self._lost_at = None
        self._denied_at = None
        self.problem = ""

    def _settle(self, *, absent: bool) -> None:
        before = self.settled
        self.synced = self.synced or not absent
        self.absent = absent
        if not before:
            self._on_settled()


def _now() -> float:
    return asyncio.get_running_loop().time()
