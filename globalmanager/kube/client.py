"""One cluster's API as seven verbs over plain dicts, each with a deadline and an ApiError.

Called by the engine, REST and app. Objects go in and come out as the API's own JSON; nothing is
cached, retried or logged here, and bodies (Secrets among them) appear in no error.
"""

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import msgspec

from common.errors import SettingsError, Unavailable
from common.ids import Uid
from globalmanager.contract import Object, ObjectRef, ResourceType, ref_of
from globalmanager.kube import errors
from globalmanager.kube.guard import Guard, Shut
from globalmanager.kube.lines import LineSplitter
from globalmanager.kube.objects import (
    NotReadable,
    Page,
    Unreadable,
    decode,
    read,
    read_page,
    take_page_apart,
)
from globalmanager.kube.rate import Share, SharedRate
from globalmanager.kube.transport import Transport, open_transport

MERGE_PATCH: Final = "application/merge-patch+json"
RequestHook = Callable[[str, str, float], None]
"""(verb, HTTP code or "none", seconds) after each request; for metrics."""
Check = Callable[[], None]
"""Called immediately before a request is sent, after all waiting for the rate; raises what ends the
request."""


def _no_check() -> None:
    pass


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the GlobalManager treats the API server."""

    qps: float = 500.0
    """Requests per second in the long run. A server with priority and fairness limits how many
    requests it executes at once, not their rate, and this client has fewer under way than a
    ServiceAccount may; so this spares the processors of server and etcd (docs/architecture.md)."""
    burst: int = 1000
    """Requests that may pass at once after a quiet time."""
    deadline_s: float = 10.0
    """For one request, its answer included; and for a watch to end after its time."""
    list_deadline_s: float = 30.0
    """For one page of a list; Kubernetes' own objective for it is 30 s."""
    page_size: int = 500
    """Objects in one page of a list."""
    page_bytes: int = 16 * 1024 * 1024
    """One page may have so many; of objects that are too large for that, fewer are asked for. 500
    of the largest that etcd takes would have 750 MiB."""


_DEFAULTS: Final = ClientSettings()
_Items = list[Object | Unreadable]


class Listing(msgspec.Struct, frozen=True):
    """All objects of a collection at one instant, `resource_version`."""

    items: list[Object]
    unreadable: list[Unreadable]
    resource_version: str


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One request to make; `verb` and `target` are for people, the rest for the wire."""

    verb: str
    target: str
    method: str
    path: str
    query: dict[str, str] = {}
    body: Any = None
    content_type: str = "application/json"

    def failed(self, class_: type[errors.ApiError], message: str) -> errors.ApiError:
        return class_(self.verb, self.target, message=message)


class KubeClient:
    """Safe for concurrent use. Close it; `async with` does."""

    def __init__(
        self,
        transport: Transport,
        settings: ClientSettings = _DEFAULTS,
        *,
        on_request: RequestHook = lambda _verb, _code, _seconds: None,
    ) -> None:
        self._transport = transport
        self._settings = settings
        self._on_request = on_request
        self._rate = SharedRate(qps=settings.qps, burst=settings.burst)
        self._share = Share.OTHER
        self._guard: Guard | None = None  # of writes; None: every write is sent

    @classmethod
    async def from_kubeconfig(
        cls,
        path: Path | None,
        settings: ClientSettings = _DEFAULTS,
        *,
        on_request: RequestHook = lambda _verb, _code, _seconds: None,
    ) -> Self:
        """A client for the current context of a kubeconfig; None: for the cluster it runs in.

        Raises: SettingsError naming the file and what is wrong with it
        """
        return cls(await open_transport(path), settings, on_request=on_request)

    def guarded(self, guard: Guard) -> Self:
        """The same connections and rate, but `guard` decides on each write; reads always pass.

        The guard is asked immediately before a write is sent, after all waiting for the rate. A
        write that it does not let pass raises NotLeading.
        """
        guarded = copy.copy(self)
        guarded._guard = guard
        return guarded

    def apart(self, settings: ClientSettings) -> Self:
        """The same connections, with a rate of its own: heartbeats do not queue behind work."""
        apart = copy.copy(self)
        apart._settings = settings
        apart._rate = SharedRate(qps=settings.qps, burst=settings.burst)
        return apart

    def on_share(self, share: Share) -> Self:
        """The same connections and rate, of which what is asked for has this share."""
        sharing = copy.copy(self)
        sharing._share = share
        return sharing

    async def redial(self, *, deadline_s: float) -> None:
        """Dial the API server anew; once it answers, give up all connections of before.

        What is asked for over those, watches among it, ends as Unreachable.

        Raises: ApiError, Overloaded, SettingsError: there is no answer, and the connections of
            before stay
        """
        fresh = copy.copy(self)
        fresh._transport = self._transport.anew()
        # Served to everybody who is known, and without a look at what is stored.
        attempt = Attempt(verb="get", target="version", method="GET", path="/version")
        try:
            await fresh._ask(attempt, deadline_s)
        except BaseException:
            await fresh.close()
            raise
        await self._transport.take_over(fresh._transport)

    async def _ask(self, attempt: Attempt, deadline_s: float) -> None:
        """A refusal is an answer, too. Raises: as every verb, but for what is such a refusal"""
        try:
            async with self._answered(attempt, deadline_s):
                pass
        except Unavailable:
            raise
        except errors.ApiError as error:
            if not error.code:
                raise

    @property
    def redialled(self) -> asyncio.Event:
        """Of the connections of now: set once they have been given up for new ones."""
        return self._transport.replaced

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    # Every verb raises ApiError, and Overloaded when this client is over its own rate.

    async def get(self, ref: ObjectRef) -> Object:
        return await self._object(_attempt("get", "GET", ref))

    async def list(
        self, type_: ResourceType, *, namespace: str = "", label_selector: str = ""
    ) -> Listing:
        """The whole collection, page by page; namespace "" means all.

        Raises: Gone when the pages took longer than the server keeps history; start again
        """
        query = {"labelSelector": label_selector}
        limit = self._settings.page_size
        listing = Listing([], [], "")
        while True:
            try:
                page, items = await self._page(type_, namespace, {**query, "limit": str(limit)})
            except _PageTooLarge:
                limit = max(1, limit // 2)
                continue
            for object_ in items:
                if isinstance(object_, Unreadable):
                    listing.unreadable.append(object_)
                else:
                    listing.items.append(_typed(type_, object_))
            # All pages show the instant of the first.
            version = listing.resource_version or page.resource_version
            listing = msgspec.structs.replace(listing, resource_version=version)
            if not page.continue_:
                return listing
            query["continue"] = page.continue_

    async def create(
        self, type_: ResourceType, object_: Object, *, check: Check = _no_check
    ) -> Object:
        metadata = object_["metadata"]
        ref = ObjectRef(type_, metadata.get("namespace", ""), metadata.get("name", ""))
        attempt = Attempt(
            verb="create",
            target=str(ref),
            method="POST",
            path=type_.path(ref.namespace),
            body=_typed(type_, object_),
        )
        return await self._object(attempt, check=check)

    async def replace(self, type_: ResourceType, object_: Object) -> Object:
        """PUT; conditional on metadata.resourceVersion and metadata.uid where they are set."""
        body = _typed(type_, object_)
        return await self._object(_attempt("update", "PUT", ref_of(type_, object_), body=body))

    async def merge_patch(
        self, ref: ObjectRef, patch: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        """JSON merge patch; conditional on metadata.resourceVersion where the patch has it."""
        attempt = _attempt("patch", "PATCH", ref, body=patch, subresource=subresource)
        return await self._object(msgspec.structs.replace(attempt, content_type=MERGE_PATCH))

    async def delete(
        self, ref: ObjectRef, *, uid: Uid | None = None, propagation: str = "Background"
    ) -> Object | None:
        """Delete, only if it is the object of that uid (else Conflict).

        Returns: the object while it ends gracefully or waits for finalizers; None: it is gone
        """
        options: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
        }
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        answer = await self._object(_attempt("delete", "DELETE", ref, body=options))
        return answer if "deletionTimestamp" in (answer.get("metadata") or {}) else None

    async def watch_lines(
        self,
        type_: ResourceType,
        *,
        resource_version: str,
        timeout_s: int,
        namespace: str = "",
        label_selector: str = "",
    ) -> AsyncGenerator[bytes, None]:
        """Raw lines of a watch, one JSON event each, until the server ends it.

        `objects` reads them. The first is empty: the server accepted the watch. Use it inside
        `contextlib.aclosing`, which gives the connection back.

        Args:
            timeout_s: how long the server shall keep it up; an idle one that is healthy is silent
                until then
        Raises: ApiError; Silent when it has not ended by its time and a deadline
        """
        attempt = Attempt(
            verb="watch",
            target=str(type_),
            method="GET",
            path=type_.path(namespace),
            query={
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": resource_version,
                "timeoutSeconds": str(timeout_s),
                "labelSelector": label_selector,
            },
        )
        deadline_s = self._settings.deadline_s
        async with (
            self._answered(attempt, deadline_s, is_stream=True) as response,
            aclosing(_lines(response, attempt, timeout_s + deadline_s)) as lines,
        ):
            yield b""
            async for line in lines:
                yield line

    async def _page(
        self, type_: ResourceType, namespace: str, query: dict[str, str]
    ) -> tuple[Page, _Items]:
        """Raises: ApiError; _PageTooLarge unless it is a page of one object"""
        attempt = Attempt(
            verb="list",
            target=str(type_),
            method="GET",
            path=type_.path(namespace),
            query=query,
        )
        async with self._answered(attempt, self._settings.list_deadline_s) as response:
            body = bytearray()
            async for data in response.content.iter_any():
                body += data
                if len(body) > self._settings.page_bytes and query["limit"] != "1":
                    raise _PageTooLarge
        try:
            return await _items_of(bytes(body))
        except NotReadable as error:
            raise attempt.failed(errors.Malformed, str(error)) from error

    async def _object(self, attempt: Attempt, *, check: Check = _no_check) -> Object:
        """The JSON object that answers."""
        deadline_s = self._settings.deadline_s
        async with self._answered(attempt, deadline_s, check=check) as response:
            body = await response.read()
        try:
            return decode(body)
        except NotReadable as error:
            raise attempt.failed(errors.Malformed, f"the answer cannot be read: {error}") from error

    @asynccontextmanager
    async def _answered(
        self,
        attempt: Attempt,
        deadline_s: float,
        *,
        is_stream: bool = False,
        check: Check = _no_check,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful answer, its body unread. Raises: ApiError.

        Args:
            is_stream: the deadline ends with the headers; else it covers the whole `with` body
        """
        await self._rate.acquire(self._share)
        check()
        try:
            async with (
                self._passage(attempt),
                asyncio.timeout(deadline_s) as deadline,
                self._send(attempt) as response,
            ):
                if not 200 <= response.status < 300:
                    raise await self._refusal(attempt, response)
                if is_stream:
                    deadline.reschedule(None)
                yield response
        except Shut as error:
            raise attempt.failed(errors.NotLeading, "this replica is not the leader") from error
        except TimeoutError as error:
            problem = f"no answer within {deadline_s:g} s"
            raise attempt.failed(errors.Silent, problem) from error
        except ConnectionError as error:
            raise attempt.failed(errors.Unreachable, str(error)) from error

    def _passage(self, attempt: Attempt) -> AbstractAsyncContextManager[None]:
        is_read = attempt.method == "GET"
        return nullcontext() if self._guard is None or is_read else self._guard.passage()

    @asynccontextmanager
    async def _send(self, attempt: Attempt) -> AsyncIterator[aiohttp.ClientResponse]:
        started = asyncio.get_running_loop().time()
        code = "none"
        try:
            async with self._transport.request(
                attempt.method,
                attempt.path,
                query={name: value for name, value in attempt.query.items() if value},
                body=None if attempt.body is None else msgspec.json.encode(attempt.body),
                content_type=attempt.content_type,
            ) as response:
                code = str(response.status)
                self._on_request(attempt.verb, code, asyncio.get_running_loop().time() - started)
                yield response
        finally:
            if code == "none":
                self._on_request(attempt.verb, code, asyncio.get_running_loop().time() - started)

    async def _refusal(self, attempt: Attempt, response: aiohttp.ClientResponse) -> errors.ApiError:
        error = errors.from_answer(
            attempt.verb,
            attempt.target,
            response.status,
            await response.read(),
            response.headers.get("Retry-After"),
            source=self._transport.source,
        )
        if isinstance(error, errors.TooManyRequests):
            self._rate.hold_for(error.retry_after_s)  # it is this client that asks too much
        if isinstance(error, errors.Unauthorized):
            try:
                await self._transport.renew()  # the caller's next try has the new token
            except SettingsError as problem:  # not now, but the file may be put right
                return attempt.failed(errors.Unauthorized, str(problem))
        return error


class _PageTooLarge(Exception):
    """Fewer objects must be asked for."""


async def _items_of(body: bytes) -> tuple[Page, _Items]:
    """Raises: NotReadable"""
    try:
        page = read_page(body)
    except NotReadable:
        return await asyncio.to_thread(_take_apart, body)  # slow, and sessions are to go on
    return page, [read(item) for item in page.items]


def _take_apart(body: bytes) -> tuple[Page, _Items]:
    page = take_page_apart(body)
    return page, [read(item) for item in page.items]


async def _lines(
    response: aiohttp.ClientResponse, attempt: Attempt, end_within_s: float
) -> AsyncGenerator[bytes, None]:
    splitter = LineSplitter()
    end_at = asyncio.get_running_loop().time() + end_within_s
    try:
        while True:
            async with asyncio.timeout_at(end_at):
                data = await response.content.readany()
            if not data:
                return
            for line in splitter.feed(data):
                yield line
    except TimeoutError as error:
        problem = f"not ended after {end_within_s:g} s, as it should have"
        raise attempt.failed(errors.Silent, problem) from error


def _attempt(
    verb: str, method: str, ref: ObjectRef, *, body: Any = None, subresource: str = ""
) -> Attempt:
    return Attempt(
        verb=verb,
        target=str(ref),
        method=method,
        path=ref.type.path(ref.namespace, ref.name, subresource),
        body=body,
    )


def _typed(type_: ResourceType, object_: Object) -> Object:
    """With apiVersion and kind, which lists of built-in types leave out of their items."""
    if "apiVersion" in object_ and "kind" in object_:
        return object_
    return {"apiVersion": type_.api_version, "kind": type_.kind, **object_}
