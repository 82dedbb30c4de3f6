"""The client of one cluster's API: eight verbs over plain dicts, each with a deadline.

Every verb takes and returns objects as the API's own JSON, and raises ApiError. This module caches
nothing, retries nothing and logs nothing. No error contains a body, because a body may be a Secret.
"""

import asyncio
import copy
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec

from edgeai.api.resources import Object, ObjectRef, ResourceType, ref_of
from edgeai.ids import Uid
from edgeai.kube import errors, execution
from edgeai.kube.lines import lines_of, log_lines
from edgeai.kube.objects import Form, NotReadable, Page, Unreadable, decode, items_of, read
from edgeai.kube.rate import Share
from edgeai.kube.sender import (
    ApiRequest,
    Check,
    ClientSettings,
    Guard,
    RequestHook,
    Sender,
    new_policy,
    no_check,
    rate_of,
    request_for,
)
from edgeai.kube.transport import Transport, open_transport

MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"  # every JSON text is YAML
WHOLE: Final = "application/json"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Media types of the metadata of objects alone, so that the rest never leaves the API server."""
STRICT: Final = {"fieldValidation": "Strict"}
"""The query of a request whose unknown fields are refused."""
_DEFAULTS: Final = ClientSettings()
_PAGE_STEP: Final = 4
"""A page that was too large is asked for with this part of its objects. The API server has to write
each page that is too large, so the steps are large, too."""
_Items = list[Object | Unreadable]
PartOf = Callable[[Object], Object]


def whole(object_: Object) -> Object:
    return object_


class Listing(msgspec.Struct, frozen=True):
    """All objects of a collection, as they were at `resource_version`."""

    items: list[Object]
    unreadable: list[Unreadable]
    resource_version: str


class Beginning(NamedTuple):
    """The first objects of a collection."""

    items: list[Object]
    is_more: bool
    """Whether the collection has others."""


class KubeClient:
    """A client that many tasks may use at once. Call `close`, or use it with `async with`."""

    def __init__(
        self,
        transport: Transport,
        settings: ClientSettings = _DEFAULTS,
        *,
        on_request: RequestHook = lambda _verb, _code, _seconds: None,
    ) -> None:
        self._sender = Sender(new_policy(transport, settings, on_request))
        self._forms: Mapping[ResourceType, Form] = {}

    @classmethod
    async def from_kubeconfig(
        cls,
        path: Path | None,
        settings: ClientSettings = _DEFAULTS,
        *,
        context: str = "",
        on_request: RequestHook = lambda _verb, _code, _seconds: None,
    ) -> Self:
        """A client for a context of a kubeconfig, or for the cluster around this pod.

        Args:
            path: path of the kubeconfig; None: the in-cluster configuration
            context: "" for the current context
        Raises: SettingsError that names the file and the file's fault
        """
        return cls(await open_transport(path, context), settings, on_request=on_request)

    def guarded(self, guard: Guard) -> Self:
        """A client with the same connections and rate, which asks `guard` immediately before it
        sends a write, after the wait for the rate. A write that is rejected raises NotLeading.
        """
        return self._but(guard=guard)

    def apart(self, settings: ClientSettings) -> Self:
        """A client with the same connections and a rate of its own: heartbeats must not wait."""
        return self._but(settings=settings, rate=rate_of(settings), slots={})

    def on_share(self, share: Share) -> Self:
        """A client with the same connections, whose requests use this share of the rate."""
        return self._but(share=share)

    def reading(self, forms: Mapping[ResourceType, Form]) -> Self:
        """A client with the same connections and rate, which decodes only a part of objects.

        Args: forms: type -> decodes the part. Objects of other types are decoded whole
        """
        client = copy.copy(self)
        client._forms = forms
        return client

    def for_callers(self, settings: ClientSettings) -> Self:
        """A client without credentials, for `bearing`, with connections of its own, which the
        caller must close. Raises: SettingsError
        """
        return type(self)(self._sender.policy.transport.without_credentials(), settings)

    def bearing(self, token: str) -> Self:
        """A client with the same connections and rate, whose requests show this token. So the API
        server decides what they may do, and records who did it.
        """
        return self._but(transport=self._sender.policy.transport.bearing(token))

    def _but(self, **changes: Any) -> Self:
        client = copy.copy(self)
        client._sender = Sender(self._sender.policy._replace(**changes))
        return client

    @property
    def _settings(self) -> ClientSettings:
        return self._sender.policy.settings

    def make_way(self) -> None:
        """Let the requests of plans and reports pause for a moment, because an assignment changed
        and the next change is likely to follow; see `slots`.
        """
        for slots in self._sender.policy.slots.values():
            slots.make_way()

    async def redial(self, *, deadline_s: float) -> None:
        """Dial the API server again. When the server answers, close all older connections.

        Requests and watches on the older connections end as Unreachable.

        Raises: ApiError, Overloaded, SettingsError when there is no answer. Then the older
            connections stay open
        """
        await self._sender.redial(deadline_s=deadline_s)

    @property
    def redialled(self) -> asyncio.Event:
        """Set when a redial has closed the present connections."""
        return self._sender.policy.transport.replacement

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._sender.policy.transport.close()

    def read(self, type_: ResourceType, document: bytes | msgspec.Raw) -> Object | Unreadable:
        """The object in a line of a watch, as the verbs return objects of this type."""
        return read(document, self._forms.get(type_))

    # Every verb raises ApiError. It raises Overloaded when too many requests wait for the client's
    # rate.

    async def get(self, ref: ObjectRef) -> Object:
        return await self._object(request_for("get", "GET", ref), ref.type)

    async def list(
        self,
        type_: ResourceType,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        part_of: PartOf = whole,
    ) -> Listing:
        """The whole collection, read page by page. The namespace "" means all namespaces.

        Args:
            part_of: gives the part of an object that the listing keeps. Without it, the rest of the
                objects of all pages would be in memory at once
        Raises: Expired when the server forgot the list's version between two pages; list again
        """
        query = {"labelSelector": label_selector, "fieldSelector": field_selector}
        accept = METADATA_LIST if metadata_only else WHOLE
        limit = self._settings.page_size
        listing = Listing([], [], "")
        while True:
            try:
                page_query = {**query, "limit": str(limit)}
                page, items, size_bytes = await self._page(type_, namespace, page_query, accept)
            except _PageTooLarge:
                limit = max(1, limit // _PAGE_STEP)
                continue
            if size_bytes * _PAGE_STEP < self._settings.page_bytes:
                # behind the large objects of one tenant come the small ones of others
                limit = min(limit * 2, self._settings.page_size)
            for object_ in items:
                if isinstance(object_, Unreadable):
                    listing.unreadable.append(object_)
                else:
                    listing.items.append(part_of(_typed(type_, object_)))
            # All pages show the collection at the version of the first page.
            version = listing.resource_version or page.resource_version
            listing = msgspec.structs.replace(listing, resource_version=version)
            if not page.continue_:
                return listing
            query["continue"] = page.continue_

    async def beginning(
        self, type_: ResourceType, *, namespace: str, field_selector: str, limit: int
    ) -> Beginning:
        """At most `limit` objects of a collection.

        Raises: TooLarge when they have more than `page_bytes`
        """
        query = {"fieldSelector": field_selector, "limit": str(limit)}
        try:
            page, items, _ = await self._page(type_, namespace, query, WHOLE)
        except _PageTooLarge as error:
            problem = f"{limit} of them have more than {self._settings.page_bytes} bytes"
            raise errors.TooLarge("list", str(type_), message=problem) from error
        readable = [item for item in items if not isinstance(item, Unreadable)]
        return Beginning(readable, bool(page.continue_) or len(readable) < len(items))

    async def create(
        self,
        type_: ResourceType,
        object_: Object,
        *,
        check: Check = no_check,
        is_strict: bool = False,
    ) -> Object:
        """Args: is_strict: as in `apply`"""
        metadata = object_["metadata"]
        ref = ObjectRef(type_, metadata.get("namespace", ""), metadata.get("name", ""))
        request = ApiRequest(
            verb="create",
            target=str(ref),
            method="POST",
            path=type_.path(ref.namespace),
            namespace=ref.namespace,
            query=STRICT if is_strict else {},
            body=_typed(type_, object_),
        )
        return await self._object(request, type_, check=check)

    async def replace(self, type_: ResourceType, object_: Object) -> Object:
        """PUT the object. The server checks metadata.resourceVersion and metadata.uid if set."""
        body = _typed(type_, object_)
        request = request_for("update", "PUT", ref_of(type_, object_), body=body)
        return await self._object(request, type_)

    async def merge_patch(
        self,
        ref: ObjectRef,
        patch: Mapping[str, Any],
        *,
        subresource: str = "",
        is_strict: bool = False,
    ) -> Object:
        """Send a JSON merge patch. The server checks metadata.resourceVersion if the patch has it.

        Args: is_strict: as in `apply`
        """
        request = request_for("patch", "PATCH", ref, body=patch, subresource=subresource)
        query = STRICT if is_strict else {}
        request = msgspec.structs.replace(request, query=query, content_type=MERGE_PATCH)
        return await self._object(request, ref.type)

    async def apply(
        self,
        type_: ResourceType,
        object_: Object,
        *,
        manager: str,
        is_forced: bool = False,
        is_strict: bool = False,
    ) -> Object:
        """Create the object, or change the fields that `manager` applies. Fields of others stay.

        Args:
            is_forced: take over the fields that another manager has set to other values
            is_strict: refuse fields that the type does not have
        Raises: Conflict when another manager has set them and `is_forced` is False
        """
        request = request_for("patch", "PATCH", ref_of(type_, object_), body=_typed(type_, object_))
        query = {"fieldManager": manager, "force": "true" if is_forced else ""}
        query |= STRICT if is_strict else {}
        request = msgspec.structs.replace(request, query=query, content_type=APPLY_PATCH)
        return await self._object(request, type_)

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
        request = request_for("delete", "DELETE", ref, body=options)
        answer = await self._object(request, ref.type)
        return answer if "deletionTimestamp" in (answer.get("metadata") or {}) else None

    async def watch_lines(
        self,
        type_: ResourceType,
        *,
        resource_version: str,
        timeout_s: int,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a watch, until the server ends it: an empty one when it has accepted the
        watch, then those that `objects.read_event` reads.

        Iterate inside `contextlib.aclosing`, which releases the connection.

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
                "fieldSelector": field_selector,
            },
            accept=METADATA if metadata_only else WHOLE,
        )
        deadline_s = self._settings.deadline_s
        async with (
            self._sender.answered(request, deadline_s, is_stream=True) as response,
            aclosing(lines_of(response, request, timeout_s + deadline_s)) as lines,
        ):
            yield b""
            async for line in lines:
                yield line

    async def log_lines(
        self,
        ref: ObjectRef,
        *,
        container: str,
        follow: bool = False,
        tail: int | None = None,
        is_previous: bool = False,
        since_s: int | None = None,
        limit_bytes: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a container's log, each with its time (RFC 3339) and a space before it.

        Iterate inside `contextlib.aclosing`, which releases the connection.

        Args:
            follow: go on until the container ends
            tail: number of the newest lines that are wanted; None: all
            is_previous: the log of the run before the last restart
            since_s: age of the oldest lines that are wanted, seconds; None: any
            limit_bytes: bytes after which the server ends the log, perhaps within a line
        Raises: ApiError; Invalid (400) while the container has not started
        """
        query = {"container": container, "timestamps": "true"}
        query |= {"follow": "true"} if follow else {}
        query |= {"previous": "true"} if is_previous else {}
        numbers = {"tailLines": tail, "sinceSeconds": since_s, "limitBytes": limit_bytes}
        query |= {name: str(number) for name, number in numbers.items() if number is not None}
        request = request_for("get", "GET", ref, subresource="log", query=query, accept="*/*")
        deadline_s = self._settings.deadline_s
        # A kubelet sends the headers with the first line, and a container may be silent for hours.
        headers_s = math.inf if follow else deadline_s
        async with (
            self._sender.answered(request, headers_s, is_stream=True) as response,
            aclosing(log_lines(response, request, None if follow else deadline_s)) as lines,
        ):
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
        request = request_for("exec", "GET", ref, subresource="exec")
        query = execution.query(container, command, has_stdin=bool(stdin))
        async with self._sender.socket(request, query, protocol=execution.PROTOCOL) as socket:
            try:
                return await execution.talk(socket, stdin)
            except execution.NotStarted as error:
                raise request.failed(errors.Invalid, str(error)) from error

    async def _page(
        self, type_: ResourceType, namespace: str, query: dict[str, str], accept: str
    ) -> tuple[Page, _Items, int]:
        """One page of a list, its objects, and its size in bytes.

        Raises: ApiError; _PageTooLarge when a page of several objects has more than `page_bytes`
        """
        request = ApiRequest(
            verb="list",
            target=str(type_),
            method="GET",
            path=type_.path(namespace),
            query=query,
            accept=accept,
        )
        async with self._sender.answered(request, self._settings.list_deadline_s) as response:
            body = bytearray()
            async for data in response.content.iter_any():
                body += data
                if len(body) > self._settings.page_bytes and query["limit"] != "1":
                    raise _PageTooLarge
        try:
            return *await items_of(body, self._forms.get(type_)), len(body)
        except NotReadable as error:
            raise self._sender.malformed(request, str(error)) from error

    async def _object(
        self, request: ApiRequest, type_: ResourceType | None = None, *, check: Check = no_check
    ) -> Object:
        """Send the request and decode the JSON object in the answer.

        Args: type_: the type of that object; None for an object that is never read in part
        """
        deadline_s = self._settings.deadline_s
        async with self._sender.answered(request, deadline_s, check=check) as response:
            body = await response.read()
        try:
            return decode(body, self._forms.get(type_) if type_ is not None else None)
        except NotReadable as error:
            problem = f"the answer cannot be read: {error}"
            raise self._sender.malformed(request, problem) from error


class _PageTooLarge(Exception):
    """The page has too many bytes. The client must ask for fewer objects."""


def _typed(type_: ResourceType, object_: Object) -> Object:
    """The object with apiVersion and kind. The items of a list may lack these two fields."""
    if "apiVersion" in object_ and "kind" in object_:
        return object_
    return {"apiVersion": type_.api_version, "kind": type_.kind, **object_}
