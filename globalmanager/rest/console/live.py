"""Pages that change while they are open: server-sent events, made from the caches.

A channel is one page as one Sight sees it; all browsers that show it share one rendering. A task
renders every open channel again and sends what has changed. It spends a small share of the
processor: the more there is to render, the rarer it renders. A browser that reads slowly gets the
newest state alone.
"""

import asyncio
import http
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from aiohttp import web

from common.addresses import network_of
from common.errors import Overloaded
from common.logs import get_logger
from globalmanager.edge.door.admission import AddressBuckets
from globalmanager.rest.errors import RequestError
from globalmanager.rest.streams import limit_writes

log = get_logger(__name__)

Render = Callable[[], dict[str, str]]
"""Function that returns the events of a page: name of the event -> its data."""
BEAT: Final = b": beat\n\n"


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
    write_s: float = 10.0
    """Longest time until a browser has taken an event."""


PAGES_PER_S: Final = 20.0
"""Pages per second of one IP address. A page of 5,000 jobs takes the event loop 20 ms, and the
sessions of the nodes share the loop."""
PAGES_BURST: Final = 200


class PageRate:
    """Bounds how much one address lets this process render."""

    def __init__(self, *, per_s: float = PAGES_PER_S, burst: int = PAGES_BURST) -> None:
        self._buckets = AddressBuckets(qps=per_s, burst=burst, max_wait_s=0.0, what="the console")

    def take(self, request: web.Request) -> None:
        """Raises: RequestError"""
        now = asyncio.get_running_loop().time()
        try:
            self._buckets.of(request.remote or "", now).reserve(now)
        except Overloaded as error:
            problem = "too many pages of your address: wait a few seconds, then load this again"
            raise RequestError(http.HTTPStatus.TOO_MANY_REQUESTS, problem) from error


class _Channel:
    def __init__(self, render: Render) -> None:
        self.render = render
        self.events: dict[str, str] = {}
        self.readers = 0
        self.changed = asyncio.Event()
        self._is_failing = False

    def try_to_refresh(self) -> None:
        """As refresh. A failure is logged once, and harms no other page."""
        try:
            self.refresh()
        except Exception:
            if not self._is_failing:
                log.exception("page cannot be rendered")
            self._is_failing = True
        else:
            self._is_failing = False

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
        self._wanted = asyncio.Event()  # set while a page is open

    @property
    def streams(self) -> int:
        return sum(channel.readers for channel in self._channels.values())

    async def run(self) -> None:
        """Render open pages until this task is cancelled."""
        while True:
            await self._wanted.wait()
            spent_s = 0.0
            for channel in list(self._channels.values()):
                began_s = time.perf_counter()
                channel.try_to_refresh()
                spent_s += time.perf_counter() - began_s
                await asyncio.sleep(0)
            await asyncio.sleep(max(self._limits.tick_s, spent_s / self._limits.share))

    async def send(
        self, request: web.Request, key: Hashable, render: Render, *, for_s: float
    ) -> web.StreamResponse:
        """Send the events of a page whenever they change, until the browser leaves.

        Args: for_s: then the stream ends. The browser asks again, and is checked again
        Raises: Overloaded, and what `render` raises at its first call
        """
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        limit_writes(request, self._limits.write_s)
        address = network_of(request.remote or "")
        async with self._counted(address), self._joined(key, render) as channel:
            await response.prepare(request)
            try:
                async with asyncio.timeout(for_s) as end:
                    await self._follow(channel, response)
            except (ConnectionError, TimeoutError):
                if request.transport is not None and not end.expired():
                    request.transport.abort()
        return response

    async def _follow(self, channel: _Channel, response: web.StreamResponse) -> None:
        sent: dict[str, str] = {}
        while True:
            changed, events = channel.changed, channel.events
            news = {name: data for name, data in events.items() if sent.get(name) != data}
            sent = events
            text = "".join(event(name, data) for name, data in news.items())
            async with asyncio.timeout(self._limits.write_s):
                await response.write(text.encode() or BEAT)
            try:
                async with asyncio.timeout(self._limits.beat_s):
                    await changed.wait()
            except TimeoutError:
                continue

    @asynccontextmanager
    async def _counted(self, address: str) -> AsyncIterator[None]:
        """Raises: Overloaded"""
        own = self._of_address[address]
        if self.streams >= self._limits.streams or own >= self._limits.streams_per_address:
            raise Overloaded("the console, by too many open pages,", self._limits.beat_s)
        self._of_address[address] += 1
        try:
            yield
        finally:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]

    @asynccontextmanager
    async def _joined(self, key: Hashable, render: Render) -> AsyncIterator[_Channel]:
        channel = self._channels.get(key)
        if channel is None:
            channel = _Channel(render)
            channel.refresh()  # before anybody can find a channel that shows nothing
            self._channels[key] = channel
        channel.readers += 1
        self._wanted.set()
        try:
            yield channel
        finally:
            channel.readers -= 1
            if not channel.readers:
                del self._channels[key]
            if not self._channels:
                self._wanted.clear()


def event(name: str, data: str) -> str:
    """One server-sent event. Every line of the data has a field of its own."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines())
    return f"event: {name}\n{lines}\n"
