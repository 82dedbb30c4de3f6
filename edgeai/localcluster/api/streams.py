"""Streams a watch, or a container's log, over HTTP.

A stream ends when its time is up, when the watch falls behind the history (the stream then has an
event with 410), or when the client disconnects or stops reading.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator

import msgspec
from aiohttp import web

from edgeai.localcluster.api.tables import View
from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.history import Event, Watch
from edgeai.localcluster.objects.resources import Object

WRITE_TIMEOUT_S = 30.0
"""Seconds. If a client does not read for this long, the server closes the connection."""
_BATCH = 64
_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


async def stream_watch(
    request: web.Request,
    watch: Watch,
    view: View,
    *,
    timeout_s: float | None,
    bookmark_interval_s: float | None,
    mark_initial_end: bool,
) -> web.StreamResponse:
    """Send the events of a watch, one JSON object on each line, until the watch ends.

    Args:
        timeout_s: None: a random time from 30 to 60 minutes
        bookmark_interval_s: None: no bookmarks
        mark_initial_end: a bookmark follows the existing objects (sendInitialEvents)
    """
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    if timeout_s is None:
        timeout_s = random.uniform(1800, 3600)
    lines = _lines(watch, view, timeout_s, bookmark_interval_s, mark_initial_end)
    async with contextlib.aclosing(lines):
        await _send(request, response, b"", lines)
    return response


async def stream_log(request: web.Request, pieces: AsyncIterator[bytes]) -> web.StreamResponse:
    """Raises: errors.APIError of the log source, only before the response begins"""
    first = await anext(pieces, b"")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    await _send(request, response, first, pieces)
    return response


async def _send(
    request: web.Request, response: web.StreamResponse, piece: bytes, pieces: AsyncIterator[bytes]
) -> None:
    """Send all pieces. Close the connection of a client that does not read."""
    try:
        while True:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await response.write(piece)
            piece = await anext(pieces)
    except (StopAsyncIteration, ConnectionError):
        return
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()


async def _lines(
    watch: Watch, view: View, timeout_s: float, bookmark_s: float | None, mark_initial_end: bool
) -> AsyncGenerator[bytes, None]:
    """The events of a watch as bytes. Each piece has one or more lines."""
    encoder = _Encoder(view)
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    try:
        if mark_initial_end:
            while event := watch.poll():
                yield encoder.event(event)
            yield encoder.bookmark(watch.resource_version, _INITIAL_EVENTS_END)
        while (left_s := deadline - clock()) > 0:
            try:
                async with asyncio.timeout(min(left_s, bookmark_s or left_s)):
                    event = await anext(watch)
            except TimeoutError:
                if bookmark_s and watch.is_caught_up:
                    yield encoder.bookmark(watch.resource_version)
                continue
            yield encoder.event(event) + _more(watch, encoder)
    except StopAsyncIteration:
        return
    except errors.Gone as error:
        yield encoder.error(error)


def _more(watch: Watch, encoder: "_Encoder") -> bytes:
    """The events that the watch has already, as lines. So a burst of events needs few writes."""
    lines: list[bytes] = []
    while len(lines) < _BATCH and (event := watch.poll()):
        lines.append(encoder.event(event))
    return b"".join(lines)


class _Encoder:
    """Encodes the events of a watch as JSON lines, in the form that the client asked for."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._is_first = True  # only the first Table names the columns

    def event(self, event: Event) -> bytes:
        rendered = self._view.one(event.object, with_columns=self._is_first)
        self._is_first = False
        return self._line(event.type, rendered)

    def bookmark(self, resource_version: int, annotations: Object | None = None) -> bytes:
        metadata: Object = {"resourceVersion": str(resource_version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        resource = self._view.resource
        head = {"kind": resource.kind, "apiVersion": resource.group_version}
        return self._line("BOOKMARK", {**head, "metadata": metadata})

    def error(self, error: errors.APIError) -> bytes:
        return self._line("ERROR", error.status())

    def _line(self, type_: str, object_: Object) -> bytes:
        return msgspec.json.encode({"type": type_, "object": object_}) + b"\n"
