"""Pages that change while they are open: server-sent events, made from the caches.

A channel is one page as one Sight sees it; all browsers that show it share one rendering. A task
renders the open channels again and sends what has changed. It spends a small share of the
processor, of which every viewer gets an equal part: who has many different pages open waits longer,
and nobody else. A browser that reads slowly gets the newest state alone.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from common.clock import loop_time
from common.logs import get_logger
from common.tasks import wait_at_most
from edgeai.addresses import network_of
from edgeai.errors import Overloaded
from globalmanager.edge.door.admission import AddressBuckets
from globalmanager.rest.errors import RequestError
from globalmanager.rest.streams import abort, limit_writes

log = get_logger(__name__)

Render = Callable[[], dict[str, str]]
"""Function that returns the events of a page: name of the event -> its data."""


class LiveLimits(msgspec.Struct, frozen=True, kw_only=True):
    streams: int = 150
    """Open pages at a time; further pages stay as they were rendered."""
    streams_per_address: int = 100
    """The same number for one IP address (IPv6: one /64), so that nobody keeps all others out."""
    tick_s: float = 1.0
    """Shortest time between two renderings."""
    share: float = 0.04
    """Largest share of one processor for renderings."""
    beat_s: float = 15.0
    """Longest pause on a stream, so that proxies keep it."""
    look_s: float = 2.0
    """Time after which the place of a browser that has left is free again."""
    write_s: float = 10.0
    """Longest time until a browser has taken an event."""


PAGES_PER_S: Final = 20.0
"""Pages per second of one IP address. A page of 5,000 jobs takes the event loop 20 ms, and the
sessions of the nodes share the loop."""
PAGES_BURST: Final = 200


class PageRate:
    """Bounds how much one address lets this process render."""

    def __init__(self, *, per_s: float = PAGES_PER_S, burst: int = PAGES_BURST) -> None:
        self._buckets = AddressBuckets(qps=per_s, burst=burst, max_wait_s=0.0, part="the console")

    def take(self, request: web.Request) -> None:
        """Raises: RequestError"""
        now = loop_time()
        try:
            self._buckets.bucket(request.remote or "", now).reserve(now)
        except Overloaded as error:
            problem = "too many pages from your address: wait a few seconds, then reload"
            raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, problem) from error


class _Channel:
    def __init__(self, render: Render) -> None:
        self.render = render
        self.events: dict[str, str] = {}
        self.readers = 0
        self.changed = asyncio.Event()
        self.is_failing = False

    def refresh(self) -> None:
        events = self.render()
        if events != self.events:
            self.events = events
            self.changed.set()
            self.changed = asyncio.Event()


class Live:
    def __init__(self, limits: LiveLimits = LiveLimits()) -> None:  # noqa: B008 - frozen
        self._limits = limits
        self._channels: dict[Hashable, _Channel] = {}
        self._of_address: Counter[str] = Counter()
        # Viewer -> open channel -> number of its streams; the channel rendered last is at the end.
        self._turns: dict[str, dict[Hashable, int]] = {}
        self._wanted = asyncio.Event()  # set while a page is open

    @property
    def streams(self) -> int:
        return sum(channel.readers for channel in self._channels.values())

    async def run(self) -> None:
        """Render open pages until this task is cancelled."""
        while True:
            await self._wanted.wait()
            spent_s = await self._round()
            await asyncio.sleep(max(self._limits.tick_s, spent_s / self._limits.share))

    async def _round(self) -> float:
        """Render at least one page of each viewer. Returns: seconds spent"""
        part_s = self._limits.tick_s * self._limits.share / max(1, len(self._turns))
        keys: set[Hashable] = set()
        spent_s = 0.0
        for viewer in list(self._turns):
            own_s = 0.0
            for key in list(self._turns.get(viewer, ())):
                if own_s >= part_s:
                    break
                own_s += self._take_turn(viewer, key, keys)
                await asyncio.sleep(0)
            spent_s += own_s
        return spent_s

    def _take_turn(self, viewer: str, key: Hashable, keys: set[Hashable]) -> float:
        """Render a page that is still open, if nobody has done so in this round."""
        turns, channel = self._turns.get(viewer, {}), self._channels.get(key)
        if key not in turns or channel is None:
            return 0.0
        turns[key] = turns.pop(key)
        if key in keys:
            return 0.0
        keys.add(key)
        began_s = time.perf_counter()
        try:
            channel.refresh()
            channel.is_failing = False
        except Exception:  # logged once; it harms no other page
            if not channel.is_failing:
                log.exception("page cannot be rendered")
            channel.is_failing = True
        return time.perf_counter() - began_s

    async def send(
        self, request: web.Request, key: Hashable, render: Render, *, viewer: str, for_s: float
    ) -> web.StreamResponse:
        """Send the events of a page whenever they change, until the browser leaves.

        Args:
            viewer: whose part of the time it takes to render the page
            for_s: then the stream ends. The browser asks again, and is checked again
        Raises: Overloaded, and what `render` raises at its first call
        """
        async with (
            self._counted(network_of(request.remote or "")),
            self._joined(viewer, key, render) as channel,
            event_stream(request, write_s=self._limits.write_s, for_s=for_s) as response,
        ):
            await self._follow(channel, request, response)
        return response

    async def _follow(
        self, channel: _Channel, request: web.Request, response: web.StreamResponse
    ) -> None:
        earlier: dict[str, str] = {}
        while True:
            changed, events = channel.changed, channel.events
            news = {name: data for name, data in events.items() if earlier.get(name) != data}
            earlier = events
            text = "".join(event(name, data) for name, data in news.items())
            async with asyncio.timeout(self._limits.write_s):
                await response.write((text + beat()).encode())
            await self._wait(changed, request)

    async def _wait(self, changed: asyncio.Event, request: web.Request) -> None:
        """Wait for a change, for the time of a beat, or until the browser has left."""
        beat_at = time.monotonic() + self._limits.beat_s
        while not (changed.is_set() or has_left(request)):
            left_s = beat_at - time.monotonic()
            if left_s <= 0:
                return
            await wait_at_most(min(left_s, self._limits.look_s), changed)

    @contextlib.asynccontextmanager
    async def _counted(self, address: str) -> AsyncIterator[None]:
        """Raises: Overloaded"""
        own = self._of_address[address]
        if self.streams >= self._limits.streams or own >= self._limits.streams_per_address:
            raise Overloaded("the console, by too many open pages,", self._limits.beat_s)
        self._of_address[address] += 1
        try:
            yield
        finally:
            self._of_address -= Counter([address])  # leaves no zero behind

    @contextlib.asynccontextmanager
    async def _joined(self, viewer: str, key: Hashable, render: Render) -> AsyncIterator[_Channel]:
        channel = self._channels.get(key)
        if channel is None:
            channel = _Channel(render)
            channel.refresh()  # before anybody can find a channel that shows nothing
            self._channels[key] = channel
        channel.readers += 1
        turns = self._turns.setdefault(viewer, {})
        turns[key] = turns.get(key, 0) + 1
        self._wanted.set()
        try:
            yield channel
        finally:
            channel.readers -= 1
            if not channel.readers:
                del self._channels[key]
            turns[key] -= 1
            if not turns[key]:
                del turns[key]
            if not turns:
                del self._turns[viewer]
            if not self._channels:
                self._wanted.clear()


@contextlib.asynccontextmanager
async def event_stream(
    request: web.Request, *, write_s: float, for_s: float
) -> AsyncIterator[web.StreamResponse]:
    """An answer of server-sent events for `for_s`, while the browser takes some each `write_s`."""
    response = web.StreamResponse()
    response.content_type = "text/event-stream"
    limit_writes(request, write_s)
    await response.prepare(request)
    try:
        async with asyncio.timeout(for_s) as end:
            yield response
    except (ConnectionError, TimeoutError):
        if not end.expired():
            abort(request)


def has_left(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def beat() -> str:
    """Says that the stream is alive, and what time it is: the clock of a browser may be wrong."""
    return event("beat", f"{time.time():.0f}")


def event(name: str, data: str) -> str:
    """One server-sent event. Every line of the data has a field of its own."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines())
    return f"event: {name}\n{lines}\n"
