"""The client of one cluster's API: eight verbs over plain dicts, each with a deadline.

Called by the engine, REST and app. Every verb takes and returns objects as the API's own JSON, and
raises ApiError. This module caches nothing, retries nothing and logs nothing. No error contains a
body, because a body may be a Secret.
"""

import asyncio
import copy
import http
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    aclosing,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import msgspec

from common.errors import SettingsError, Unavailable
from common.ids import Uid
from globalmanager.contract import Object, ObjectRef, ResourceType, ref_of
from globalmanager.kube import errors, execution
from globalmanager.kube.guard import Guard, Shut
from globalmanager.kube.lines import LineSplitter
from globalmanager.kube.objects import (
    NotReadable,
    Page,
    Unreadable,
    decode,
    read,
    read_page,
    scan_page,
)
from globalmanager.kube.rate import Share, SharedRate
from globalmanager.kube.slots import Slots
from globalmanager.kube.transport import HandshakeRefused, Transport, open_transport

_CONTAINER_NOT_FOUND: Final = b"container not found"
MERGE_PATCH: Final = "application/merge-patch+json"
RequestHook = Callable[[str, str, float], None]
"""Function for metrics. The client calls it with (verb, HTTP code or "none", seconds) after a
request."""
Check = Callable[[], None]
"""Function that the client calls immediately before it sends a request, after the wait for the
rate. When the function raises an exception, the client does not send the request."""


def _no_check() -> None:
    pass


class ClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Rates, deadlines and limits of the client."""

    qps: float = 500.0
    """Average requests per second. A server with priority and fairness limits how many requests it
    executes at the same time, and not their rate. This client has fewer requests under way than a
    ServiceAccount may have. So this rate only spares the processors of server and etcd
    (docs/architecture.md)."""
    burst: int = 1000
    """Requests that the client may send at the same moment after a quiet time."""
    plan_requests: int = 1
    """Largest number of plans' requests that are under way at the same time while assignments
    change or reports wait, and of plans' status writes; see `slots`."""
    calm_plan_requests: int = 8
    """The same number while no assignment changes and no report waits."""
    report_requests: int = 4
    """Largest number of status writes for edges' reports that are under way at the same time."""
    slot_hold_s: float = 0.1
    """Seconds after which a request of a plan or a report no longer counts as under way."""
    deadline_s: float = 10.0
    """Longest time in seconds for one request and its answer. A watch may also end this much too
    late."""
    list_deadline_s: float = 30.0
    """Longest time in seconds for one page of a list, as in Kubernetes' own service level
    objective."""
    page_size: int = 500
    """Largest number of objects in one page of a list."""
    page_bytes: int = 16 * 1024 * 1024
    """Largest size of one page in bytes. The client asks for fewer objects when a page would be
    larger. 500 objects of the largest size that etcd accepts would have 750 MiB."""


_DEFAULTS: Final = ClientSettings()
_Items = list[Object | Unreadable]


class Listing(msgspec.Struct, frozen=True):
    """All objects of a collection, as they were at `resource_version`."""

    items: list[Object]
    unreadable: list[Unreadable]
    resource_version: str


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `verb` and `target` appear in errors. The client sends the other fields."""

    verb: str
    target: str
    method: str
    path: str
    namespace: str = ""
    query: dict[str, str] = {}
    body: Any = None
    content_type: str = "application/json"

    def failed(self, class_: type[errors.ApiError], message: str) -> errors.ApiError:
        return class_(self.verb, self.target, message=message)


class KubeClient:
    """A client that many tasks may use at the same time. Call `close`, or use it with `async
    with`.
    """

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
        reports = Slots(settings.report_requests, hold_s=settings.slot_hold_s)
        self._slots = {Share.REPORTS: reports}
        for share in (Share.PLANS, Share.STATUSES):
            self._slots[share] = Slots(
                settings.plan_requests,
                calm=settings.calm_plan_requests,
                before=reports,
                hold_s=settings.slot_hold_s,
            )
        self._share = Share.OTHER
        self._guard: Guard | None = (
            None  # the guard decides on writes; without a guard the client sends every write
        )

    @classmethod
    async def from_kubeconfig(
        cls,
        path: Path | None,
        settings: ClientSettings = _DEFAULTS,
        *,
        on_request: RequestHook = lambda _verb, _code, _seconds: None,
    ) -> Self:
        """A client for the current context of a kubeconfig, or for the cluster around this pod.

        Args: path: path of the kubeconfig; None: the in-cluster configuration
        Raises: SettingsError that names the file and the file's fault
        """
        return cls(await open_transport(path), settings, on_request=on_request)

    def guarded(self, guard: Guard) -> Self:
        """A client with the same connections and rate, whose writes need the permission of `guard`.

        The client asks the guard immediately before it sends a write, after the wait for the rate.
        A write that the guard rejects raises NotLeading. Reads need no permission.
        """
        guarded = copy.copy(self)
        guarded._guard = guard
        return guarded

    def apart(self, settings: ClientSettings) -> Self:
        """A client with the same connections and a rate of its own. So heartbeats do not wait
        behind other requests.
        """
        apart = copy.copy(self)
        apart._settings = settings
        apart._rate = SharedRate(qps=settings.qps, burst=settings.burst)
        apart._slots = {}
        return apart

    def on_share(self, share: Share) -> Self:
        """A client with the same connections, whose requests use this share of the rate."""
        sharing = copy.copy(self)
        sharing._share = share
        return sharing

    def make_way(self) -> None:
        """Let the requests of plans and reports pause for a moment, because an assignment changed
        and the next change is likely to follow; see `slots`.
        """
        for slots in self._slots.values():
            slots.make_way()

    async def redial(self, *, deadline_s: float) -> None:
        """Dial the API server anew. When the server answers, close all older connections.

        Requests and watches on the older connections end as Unreachable.

        Raises: ApiError, Overloaded, SettingsError when there is no answer. Then the older
            connections stay open
        """
        fresh = copy.copy(self)
        fresh._transport = self._transport.anew()
        # Every authenticated client may read the version, and the answer needs no storage.
        request = ApiRequest(verb="get", target="version", method="GET", path="/version")
        try:
            await fresh._ask(request, deadline_s)
        except BaseException:
            await fresh.close()
            raise
        await self._transport.take_over(fresh._transport)

    async def _ask(self, request: ApiRequest, deadline_s: float) -> None:
        """Wait for an answer. A refusal is an answer too. Raises: ApiError, Overloaded"""
        try:
            async with self._answered(request, deadline_s):
                pass
        except Unavailable:
            raise
        except errors.ApiError as error:
            if not error.code:
                raise

    @property
    def redialled(self) -> asyncio.Event:
        """Set when a redial has closed the present connections."""
        return self._transport.replaced

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    # Every verb raises ApiError. It raises Overloaded when too many requests wait for the client's
    # rate.

    async def get(self, ref: ObjectRef) -> Object:
        return await self._object(_request("get", "GET", ref))

    async def list(
        self, type_: ResourceType, *, namespace: str = "", label_selector: str = ""
    ) -> Listing:
        """The whole collection, read page by page. The namespace "" means all namespaces.

        Raises: Gone when the server forgot the list's version between two pages; list again
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
            # All pages show the collection at the version of the first page.
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
        request = ApiRequest(
            verb="create",
            target=str(ref),
            method="POST",
            path=type_.path(ref.namespace),
            namespace=ref.namespace,
            body=_typed(type_, object_),
        )
        return await self._object(request, check=check)

    async def replace(self, type_: ResourceType, object_: Object) -> Object:
        """PUT the object. The server checks metadata.resourceVersion and metadata.uid if they are
        set.
        """
        body = _typed(type_, object_)
        return await self._object(_request("update", "PUT", ref_of(type_, object_), body=body))

    async def merge_patch(
        self, ref: ObjectRef, patch: Mapping[str, Any], *, subresource: str = ""
    ) -> Object:
        """Send a JSON merge patch. The server checks metadata.resourceVersion if the patch has
        it.
        """
        request = _request("patch", "PATCH", ref, body=patch, subresource=subresource)
        return await self._object(msgspec.structs.replace(request, content_type=MERGE_PATCH))

    async def delete(
        self,
        ref: ObjectRef,
        *,
        uid: Uid | None = None,
        propagation: str = "Background",
        grace_period_s: int | None = None,
    ) -> Object | None:
        """Delete the object.

        Args:
            uid: delete only the object with this uid
            grace_period_s: time that the processes of a pod have to end; 0: delete the pod at once,
                without its kubelet; None: the time of the pod
        Returns: the object while it terminates or waits for finalizers; None when the object is
            gone
        Raises: Conflict when an object with another uid has the name
        """
        options: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
        }
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        answer = await self._object(_request("delete", "DELETE", ref, body=options))
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
        """The raw lines of a watch, until the server ends the watch. Each line has one JSON event.

        The first line is empty and says that the server accepted the watch. `objects.read_event`
        reads the other lines. Iterate inside `contextlib.aclosing`, which releases the connection.

        Args:
            timeout_s: seconds after which the server must end the watch. A healthy watch may be
                silent for the whole time
        Raises: ApiError; Silent when the watch has not ended `deadline_s` after `timeout_s`
        """
        request = ApiRequest(
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
            self._answered(request, deadline_s, is_stream=True) as response,
            aclosing(_lines(response, request, timeout_s + deadline_s)) as lines,
        ):
            yield b""
            async for line in lines:
                yield line

    async def execute(
        self, ref: ObjectRef, *, container: str, command: Sequence[str], stdin: bytes = b""
    ) -> execution.End:
        """Run a command in a container of the pod `ref`, and wait until the command ends. There is
        no deadline for that; when the caller is cancelled, the command may go on.

        Args: stdin: what the command can read; the input stays open afterwards
        Raises: ApiError; Unreachable also when the connection breaks while the command runs;
            Invalid when the container cannot start the command
        """
        request = _request("exec", "GET", ref, subresource="exec")
        query = execution.query(container, command, has_stdin=bool(stdin))
        async with (
            self._admitted(request),
            self._connected(request, self._settings.deadline_s) as deadline,
        ):
            with self._measured(request) as answered:
                try:
                    async with self._transport.websocket(
                        request.path, query=query, protocol=execution.PROTOCOL
                    ) as socket:
                        answered(http.HTTPStatus.SWITCHING_PROTOCOLS)
                        deadline.reschedule(None)
                        return await execution.talk(socket, stdin)
                except HandshakeRefused as refused:
                    answered(refused.status)
                    if _CONTAINER_NOT_FOUND in refused.body:  # a kubelet's answer has no Status
                        problem = f"container not found: {container}"
                        raise request.failed(errors.NotFound, problem) from None
                    raise await self._refusal(
                        request, refused.status, refused.body, refused.retry_after
                    ) from None
                except execution.NotStarted as error:
                    raise request.failed(errors.Invalid, str(error)) from error

    async def _page(
        self, type_: ResourceType, namespace: str, query: dict[str, str]
    ) -> tuple[Page, _Items]:
        """One page of a list.

        Raises: ApiError; _PageTooLarge when a page of several objects has more than `page_bytes`
        """
        request = ApiRequest(
            verb="list",
            target=str(type_),
            method="GET",
            path=type_.path(namespace),
            query=query,
        )
        async with self._answered(request, self._settings.list_deadline_s) as response:
            body = bytearray()
            async for data in response.content.iter_any():
                body += data
                if len(body) > self._settings.page_bytes and query["limit"] != "1":
                    raise _PageTooLarge
        try:
            return await _items_of(bytes(body))
        except NotReadable as error:
            raise request.failed(errors.Malformed, str(error)) from error

    async def _object(self, request: ApiRequest, *, check: Check = _no_check) -> Object:
        """Send the request and decode the JSON object in the answer."""
        deadline_s = self._settings.deadline_s
        async with self._answered(request, deadline_s, check=check) as response:
            body = await response.read()
        try:
            return decode(body)
        except NotReadable as error:
            raise request.failed(errors.Malformed, f"the answer cannot be read: {error}") from error

    @asynccontextmanager
    async def _answered(
        self,
        request: ApiRequest,
        deadline_s: float,
        *,
        is_stream: bool = False,
        check: Check = _no_check,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful answer. The body is not read yet.

        Args:
            is_stream: True when the deadline covers only the headers. Otherwise the deadline covers
                the whole body of the `with` statement
        Raises: ApiError
        """
        async with self._admitted(request):
            check()
            async with self._exchange(request, deadline_s, is_stream=is_stream) as response:
                yield response

    @asynccontextmanager
    async def _admitted(self, request: ApiRequest) -> AsyncIterator[None]:
        """Wait for a slot of the share, and then for the rate: a Retry-After of the server thus
        also holds the requests that wait for a slot.
        """
        slots = self._slots.get(self._share)
        if slots is None:
            await self._rate.acquire(self._share)
            yield
            return
        async with slots.taken(request.namespace) as start:
            await self._rate.acquire(self._share)
            start()
            yield

    @asynccontextmanager
    async def _exchange(
        self, request: ApiRequest, deadline_s: float, *, is_stream: bool
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request that has passed the rate and the slots. Raises: ApiError"""
        async with (
            self._connected(request, deadline_s) as deadline,
            self._send(request) as response,
        ):
            if not 200 <= response.status < 300:
                body, retry_after = await response.read(), response.headers.get("Retry-After")
                raise await self._refusal(request, response.status, body, retry_after)
            if is_stream:
                deadline.reschedule(None)
            yield response

    @asynccontextmanager
    async def _connected(
        self, request: ApiRequest, deadline_s: float
    ) -> AsyncIterator[asyncio.Timeout]:
        """The deadline of a request that has the guard's permission. Errors of the `with` body
        become errors of the request. Raises: ApiError
        """
        try:
            async with self._passage(request), asyncio.timeout(deadline_s) as deadline:
                yield deadline
        except Shut as error:
            raise request.failed(errors.NotLeading, "this replica is not the leader") from error
        except TimeoutError as error:
            problem = f"no answer within {deadline_s:g} s"
            raise request.failed(errors.Silent, problem) from error
        except ConnectionError as error:
            raise request.failed(errors.Unreachable, str(error)) from error

    def _passage(self, request: ApiRequest) -> AbstractAsyncContextManager[None]:
        is_read = request.verb in ("get", "list", "watch")
        return nullcontext() if self._guard is None or is_read else self._guard.passage()

    @asynccontextmanager
    async def _send(self, request: ApiRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        with self._measured(request) as answered:
            async with self._transport.request(
                request.method,
                request.path,
                query={name: value for name, value in request.query.items() if value},
                body=None if request.body is None else msgspec.json.encode(request.body),
                content_type=request.content_type,
            ) as response:
                answered(response.status)
                yield response

    @contextmanager
    def _measured(self, request: ApiRequest) -> Iterator[Callable[[int], None]]:
        """Reports the request to the hook: when the caller calls the function with the HTTP status,
        or at the end when there was no answer.
        """
        started = asyncio.get_running_loop().time()
        is_reported = False

        def report(code: str) -> None:
            nonlocal is_reported
            if not is_reported:
                is_reported = True
                seconds = asyncio.get_running_loop().time() - started
                self._on_request(request.verb, code, seconds)

        try:
            yield lambda status: report(str(status))
        finally:
            report("none")

    async def _refusal(
        self, request: ApiRequest, status: int, body: bytes, retry_after: str | None
    ) -> errors.ApiError:
        error = errors.from_answer(
            request.verb,
            request.target,
            status,
            body,
            retry_after,
            source=self._transport.source,
        )
        if isinstance(error, errors.TooManyRequests):
            # slow down all requests with this client's rate
            self._rate.hold_for(error.retry_after_s)
        if isinstance(error, errors.Unauthorized):
            try:
                await self._transport.renew()  # the caller's next try uses the new token
            except SettingsError as problem:  # an administrator may still correct the file
                return request.failed(errors.Unauthorized, str(problem))
        return error


class _PageTooLarge(Exception):
    """The page has too many bytes. The client must ask for fewer objects."""


async def _items_of(body: bytes) -> tuple[Page, _Items]:
    """The page and its objects. Raises: NotReadable"""
    try:
        page = read_page(body)
    except NotReadable:
        # `scan_page` is slow. In a thread, `scan_page` does not block the event loop and the
        # sessions.
        return await asyncio.to_thread(_scan_items, body)
    return page, [read(item) for item in page.items]


def _scan_items(body: bytes) -> tuple[Page, _Items]:
    page = scan_page(body)
    return page, [read(item) for item in page.items]


async def _lines(
    response: aiohttp.ClientResponse, request: ApiRequest, end_within_s: float
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
        raise request.failed(errors.Silent, problem) from error


def _request(
    verb: str, method: str, ref: ObjectRef, *, body: Any = None, subresource: str = ""
) -> ApiRequest:
    return ApiRequest(
        verb=verb,
        target=str(ref),
        method=method,
        path=ref.type.path(ref.namespace, ref.name, subresource),
        namespace=ref.namespace,
        body=body,
    )


def _typed(type_: ResourceType, object_: Object) -> Object:
    """The object with apiVersion and kind. The items of a list may lack these two fields."""
    if "apiVersion" in object_ and "kind" in object_:
        return object_
    return {"apiVersion": type_.api_version, "kind": type_.kind, **object_}
