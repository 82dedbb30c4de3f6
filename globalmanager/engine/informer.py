"""Keeps a Store equal to a collection of the API: list once, then watch, and recover.

The engine runs one per type and selector. Every way in which a watch can go wrong ends in either
a new watch from the last resourceVersion or a new list, after a jittered backoff; none ends the
task. Behaves like client-go's reflector; paged lists and bookmarks are used.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final

import msgspec

from common import logs
from common.backoff import Backoff
from common.errors import EdgeAIError, Unavailable
from globalmanager.engine.store import Store
from globalmanager.kube import errors
from globalmanager.kube.client import KubeClient
from globalmanager.model import ResourceType

log = logs.get_logger(__name__)

_HEALTHY_WATCH_S: Final = 5.0


class InformerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The reflector's times; client-go's, where it has them."""

    watch_min_s: float = 300.0
    """Shortest time a watch is asked for; random up to twice that, so that they end apart."""
    inactivity_s: float = 90.0
    """Silence after which a watch counts as dead. The server sends a bookmark every minute."""
    backoff_base_s: float = 0.8
    backoff_max_s: float = 30.0
    absent_after_s: float = 5.0
    """A type that the server says for so long not to know is taken to be not installed. A server
    that has just started may deny types that it will serve in a moment."""


class WatchEvent(msgspec.Struct, frozen=True):
    type: str
    object: dict[str, Any]


class Informer:
    """One collection: a type, in one namespace or all, with a label selector or none.

    Args:
        on_settled: called once, when `settled` becomes true
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
    ) -> None:
        self.store = store
        self.synced = False  # listed at least once
        self.absent = False  # the server does not serve the type (a CRD is not installed)
        self.problem = ""  # why the last attempt failed; "" while all is well
        self._client = client
        self._namespace = namespace if store.type.namespaced else ""
        self.label_selector = label_selector
        self._settings = settings or InformerSettings()
        self._on_settled = on_settled
        self._backoff = Backoff(
            base_s=self._settings.backoff_base_s, max_s=self._settings.backoff_max_s
        )
        self._resource_version = ""  # where the next watch starts; "" demands a list
        self._newest_listed = 0  # to notice a server whose history went back
        self._contact_at: float | None = None
        self._started_at: float | None = None
        self._denied_at: float | None = None  # since when the type is said to be unknown

    @property
    def type(self) -> ResourceType:
        return self.store.type

    @property
    def settled(self) -> bool:
        """The store can be relied on: it was filled, or there is nothing it could hold."""
        return self.synced or self.absent

    def stale_for_s(self) -> float:
        """Seconds since the API was last heard of; since the start, when it never was."""
        since = self._contact_at if self._contact_at is not None else self._started_at
        return 0.0 if since is None else _now() - since

    async def run(self) -> None:
        """Until cancelled."""
        self._started_at = _now()
        while True:
            retry_after_s = 0.0
            try:
                await self._list_and_watch()
            except EdgeAIError as error:
                self._failed(error)
                retry_after_s = getattr(error, "retry_after_s", 0.0)
            except Exception as error:
                log.exception("informer failed, listing again", resource=str(self.type))
                self._fail(f"{type(error).__name__}: {error}")
                self._resource_version = ""
            # Also after a watch that ended as agreed: a server that ends each at once would
            # otherwise be asked in a hot loop.
            await asyncio.sleep(self._backoff.next_s(at_least_s=retry_after_s))

    async def _list_and_watch(self) -> None:
        if not self._resource_version:
            await self._list()
        await self._watch()

    async def _list(self) -> None:
        listing = await self._client.list(
            self.type, namespace=self._namespace, label_selector=self.label_selector
        )
        version = int(listing.resource_version) if listing.resource_version.isdecimal() else 0
        self.store.replace(
            listing.items, listing.resource_version, rewound=version < self._newest_listed
        )
        self._newest_listed = version
        self._resource_version = listing.resource_version
        self._succeeded()
        self._settle(absent=False)
        log.info("listed", resource=str(self.type), objects=len(listing.items))

    async def _watch(self) -> None:
        shortest_s = self._settings.watch_min_s
        lines = self._client.watch_lines(
            self.type,
            resource_version=self._resource_version,
            timeout_s=random.uniform(shortest_s, 2 * shortest_s),
            inactivity_s=self._settings.inactivity_s,
            namespace=self._namespace,
            label_selector=self.label_selector,
        )
        started = _now()
        try:
            async with aclosing(lines):
                async for line in lines:
                    self._take(line)
                    self._succeeded()
        finally:
            if _now() - started >= _HEALTHY_WATCH_S:
                self._backoff.reset()

    def _take(self, line: bytes) -> None:
        if not line:
            return  # the server accepted the watch
        event = self._decoded(line)
        if event.type == "ERROR":
            status = msgspec.convert(event.object, errors.Status)
            raise errors.from_status("watch", str(self.type), status)
        if event.type in ("ADDED", "MODIFIED"):
            self.store.upsert(event.object)
        elif event.type == "DELETED":
            self.store.remove(event.object)
        elif event.type != "BOOKMARK":
            raise self._malformed(f"event of unknown type {event.type!r}")
        self._resource_version = event.object["metadata"]["resourceVersion"]

    def _decoded(self, line: bytes) -> WatchEvent:
        try:
            event = msgspec.json.decode(line, type=WatchEvent)
        except msgspec.DecodeError as error:
            raise self._malformed(f"a line that is no watch event: {error}") from error
        if event.type != "ERROR" and not _is_whole(event):
            raise self._malformed(f"{event.type} event without an object's metadata")
        return event

    def _malformed(self, message: str) -> errors.Malformed:
        return errors.Malformed("watch", str(self.type), message=message)

    def _failed(self, error: EdgeAIError) -> None:
        self._fail(str(error))
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
        if _now() - self._denied_at >= self._settings.absent_after_s:
            self._settle(absent=True)

    def _fail(self, problem: str) -> None:
        if problem != self.problem:
            log.warning("not in contact with the API", resource=str(self.type), problem=problem)
        self.problem = problem

    def _succeeded(self) -> None:
        self._contact_at = _now()
        self._denied_at = None
        self.problem = ""

    def _settle(self, *, absent: bool) -> None:
        before = self.settled
        self.synced = self.synced or not absent
        self.absent = absent
        if not before:
            self._on_settled()


def _is_whole(event: WatchEvent) -> bool:
    metadata = event.object.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("resourceVersion"), str):
        return False
    return event.type == "BOOKMARK" or isinstance(metadata.get("name"), str)


def _now() -> float:
    return asyncio.get_running_loop().time()
