"""Keeps a Store equal to a collection of the API: lists once, then watches, and recovers.

An informer behaves like client-go's reflector, with paged lists and bookmarks. After a failed watch
it waits for a jittered backoff. Then it watches again from the last resourceVersion, or lists
again. No failure ends the informer's task.

A watch of objects that do not change may be silent, even without bookmarks, so silence alone proves
nothing. The informer asks the server to end each watch soon. A watch that does not end in time is
dead. When the client has dialled the API server again, a new watch starts at once.

An object that cannot be read is set aside and reported. List and watch go on. The store keeps its
last readable state, so one bad edit does not remove running workers.
"""

import asyncio
import contextlib
import math
import random
from contextlib import aclosing
from typing import Final

import msgspec

from common import logs
from common.clock import loop_time
from edgeai.api.resources import Object, ResourceType, ref_of
from edgeai.backoff import Backoff
from edgeai.errors import EdgeAIError, Unavailable
from edgeai.kube import errors
from edgeai.kube.client import KubeClient
from edgeai.kube.objects import NotReadable, Unreadable, WatchEvent, read_event
from globalmanager.cache.setaside import SetAside
from globalmanager.cache.store import Store

log = logs.get_logger(__name__)

# The shortest watch as a fraction of the longest watch. Watches of random length do not all end at
# the same time.
_WATCH_SPREAD: Final = 0.5


class InformerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The times of an informer, in seconds."""

    watch_s: float = 80.0
    """The longest watch, so one informer sends about one request a minute. It notices a dead
    connection at the latest after this time plus the client's deadline."""
    backoff_base_s: float = 0.8
    backoff_max_s: float = 10.0
    """The longest pause after a failure. client-go waits up to 30 s, and so would edges then."""
    absent_after_s: float = 5.0
    """A CRD counts as not installed when the server has denied its type for this time, and its
    rights as not granted when the server has refused its first list for this time. A server that
    has just started may deny a CRD's type for a moment. A server never denies a built-in type that
    it serves."""
    healthy_watch_s: float = 5.0
    """After a watch of at least this length the next watch begins at once, without a backoff."""


class _Versioned(msgspec.Struct, rename="camel"):
    resource_version: str


class _Bookmark(msgspec.Struct):
    """The object of a BOOKMARK event: no name, and the version that the watch has reached."""

    metadata: _Versioned


class InformerSubscriber:
    """Gets the news of informers. A subclass overrides the methods whose news it needs."""

    def completeness_changed(self) -> None:
        """`is_complete` or `forbidden` is true now, or the server serves the type at last."""

    def set_aside(self, type_: ResourceType, object_: Unreadable) -> None:
        """An object cannot be read, or cannot be read for another reason than before."""


class Informer:
    """Follows one collection: a type, in one namespace or all, with or without a label selector.

    Args: metadata_only: ask the API server for the metadata of the objects alone
    """

    def __init__(
        self,
        client: KubeClient,
        store: Store,
        *,
        namespace: str = "",
        label_selector: str = "",
        settings: InformerSettings | None = None,
        subscriber: InformerSubscriber | None = None,
        metadata_only: bool = False,
    ) -> None:
        self.store = store
        self.set_aside = SetAside(store.type)
        self.synced = False  # the informer has listed at least once
        self.absent = False  # the server does not serve the type (the CRD is not installed)
        self.forbidden = False  # the API refuses the first list of a CRD's type for lack of a right
        self.problem = ""  # why the last attempt failed; "" while all is well
        self._client = client
        self._namespace = namespace if store.type.namespaced else ""
        self.label_selector = label_selector
        self._metadata_only = metadata_only
        self._settings = settings or InformerSettings()
        self._subscriber = subscriber or InformerSubscriber()
        self._logged = ""  # the last problem in the log; "" when the server has accepted a watch
        self._backoff = Backoff(
            base_s=self._settings.backoff_base_s, max_s=self._settings.backoff_max_s
        )
        self._resource_version = ""  # where the next watch starts; "" means: list first
        self._newest_listed = 0  # a smaller version shows that history went back
        self._heard_at = -math.inf  # time of the last answer or event of the API
        self._answer_due_at = -math.inf  # silence after this moment means that contact is lost
        self._lost_at: float | None = None  # None while there is contact
        self._denied_at: float | None = None  # the time since which the server denies the type

    @property
    def type(self) -> ResourceType:
        return self.store.type

    @property
    def is_complete(self) -> bool:
        """Whether the store is complete: a list has filled it, or the server lacks the type."""
        return self.synced or self.absent

    def stale_for_s(self) -> float:
        """Seconds since contact with the API was lost, or since the start; 0 during contact."""
        return 0.0 if self._lost_at is None else loop_time() - self._lost_at

    def silent_for_s(self) -> float:
        """Seconds since the API's last answer or event. A healthy API may be silent for long."""
        return loop_time() - self._heard_at

    async def run(self) -> None:
        """Keep the store equal to the API until this task is cancelled."""
        self._lost_at = loop_time()
        while True:
            retry_after_s = 0.0
            redialled = self._client.redialled
            try:
                await self._list_and_watch()
            except EdgeAIError as error:
                # an error of the old connection says nothing about the new one
                if not redialled.is_set():
                    self._failed(error)
                retry_after_s = getattr(error, "retry_after_s", 0.0)
            except Exception as error:
                log.exception("informer failed, listing again", resource=str(self.type))
                self._fail(f"{type(error).__name__}: {error}", loop_time())
                self._resource_version = ""
            # The informer also waits after a watch that ended early without an error. Otherwise a
            # server that ends every watch at once would get requests without a pause.
            await self._pause(self._backoff.next_s(at_least_s=retry_after_s), redialled)

    async def _pause(self, seconds: float, redialled: asyncio.Event) -> None:
        """Wait until the next try: after the client has dialled again a short, jittered time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await redialled.wait()
            self._backoff.reset()
            await asyncio.sleep(self._backoff.next_s())

    async def _list_and_watch(self) -> None:
        if not self._resource_version:
            await self._list()
        while await self._watch():
            pass  # the watch ended as the informer requested, so the next watch begins at once

    async def _list(self) -> None:
        self._answer_due_at = loop_time()
        absences = self.store.absences
        listing = await self._client.list(
            self.type,
            namespace=self._namespace,
            label_selector=self.label_selector,
            metadata_only=self._metadata_only,
            part_of=self.store.part_of,
        )
        version = int(listing.resource_version) if listing.resource_version.isdecimal() else 0
        self.store.replace(
            listing.items,
            listing.resource_version,
            absences=absences,
            rewound=version < self._newest_listed,
            unreadable={object_.ref(self.type) for object_ in listing.unreadable},
        )
        self.set_aside.retain(listing.unreadable)
        for object_ in listing.unreadable:
            self._set_aside(object_)
        self._newest_listed = version
        self._resource_version = listing.resource_version
        self._succeeded()
        self._settle(absent=False)
        if not self._logged:  # without the right to watch, the informer lists again and again
            log.info("listed", resource=str(self.type), objects=len(listing.items))

    async def _watch(self) -> bool:
        """Watch once. Returns: whether it was long enough for the next one to begin at once"""
        timeout_s = max(1, round(self._settings.watch_s * random.uniform(_WATCH_SPREAD, 1)))
        self._answer_due_at = loop_time()
        healthy_at = math.inf
        lines = self._client.watch_lines(
            self.type,
            resource_version=self._resource_version,
            timeout_s=timeout_s,
            namespace=self._namespace,
            label_selector=self.label_selector,
            metadata_only=self._metadata_only,
        )
        try:
            async with aclosing(lines):
                async for line in lines:
                    if line:
                        self._take(line)
                    else:  # the server has accepted the watch
                        self._logged = ""
                        self._answer_due_at = loop_time() + timeout_s
                        healthy_at = loop_time() + min(
                            self._settings.healthy_watch_s, timeout_s / 2
                        )
                    self._succeeded()
        finally:
            if loop_time() >= healthy_at:
                self._backoff.reset()
        return loop_time() >= healthy_at

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
        object_ = self._client.read(self.type, event.object)
        if isinstance(object_, Unreadable):
            if not (object_.name and object_.resource_version):
                raise self._malformed(f"{event.type} event of an object without a name")
            if event.type == "DELETED":
                self._remove(object_.stub(self.type))
            else:
                self._set_aside(object_)
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

    def _set_aside(self, object_: Unreadable) -> None:
        ref = object_.ref(self.type)
        self.store.remove_predecessor(object_.stub(self.type))
        if self.set_aside.add(object_):
            log.warning("object set aside", resource=str(ref), problem=object_.problem)
            self._subscriber.set_aside(self.type, object_)

    def _malformed(self, message: str) -> errors.Malformed:
        return errors.Malformed("watch", str(self.type), message=message)

    def _failed(self, error: EdgeAIError) -> None:
        is_silent = isinstance(error, errors.Silent)
        since = max(self._heard_at, self._answer_due_at) if is_silent else loop_time()
        self._fail(
            str(error), since, is_denial=self._is_denial(error) and not self.type.is_built_in
        )
        self._note_denial(error)
        if isinstance(error, Unavailable) and not isinstance(error, errors.ServerError):
            return  # the next watch goes on from the last resourceVersion
        # After Expired and every other error, only a list makes the store equal to the API again.
        self._resource_version = ""

    def _note_denial(self, error: EdgeAIError) -> None:
        if not self._is_denial(error):
            self._denied_at = None
            return
        self._denied_at = self._denied_at if self._denied_at is not None else loop_time()
        patience_s = 0.0 if self.type.is_built_in else self._settings.absent_after_s
        if not self.absent and loop_time() - self._denied_at < patience_s:
            return
        if isinstance(error, errors.NotFound):
            self._lost_at = None  # the server answers, so there is contact
            self._settle(absent=True)
        elif not self.forbidden:
            self.forbidden = True
            self._subscriber.completeness_changed()

    def _is_denial(self, error: EdgeAIError) -> bool:
        """Whether the type may not be installed here."""
        # After the first list, a missing right is a fault, and the objects of the type still count.
        is_refused = isinstance(error, errors.Forbidden) and not self.type.is_built_in
        return isinstance(error, errors.NotFound) or (is_refused and not self.is_complete)

    def _fail(self, problem: str, since: float, *, is_denial: bool = False) -> None:
        if problem != self._logged:
            # Which groups are not installed is for the engine to say, in one line for each group.
            tell = log.info if is_denial else log.warning
            tell(
                "list or watch failed",
                resource=str(self.type),
                selector=self.label_selector,
                problem=problem,
            )
        self.problem = self._logged = problem
        self._lost_at = since if self._lost_at is None else self._lost_at

    def _succeeded(self) -> None:
        self._heard_at = loop_time()
        self._lost_at = None
        self._denied_at = None
        self.forbidden = False
        self.problem = ""

    def _settle(self, *, absent: bool) -> None:
        before, was_absent = self.is_complete, self.absent
        self.synced = self.synced or not absent
        self.absent = absent
        if not before or (was_absent and not absent):
            self._subscriber.completeness_changed()
