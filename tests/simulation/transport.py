"""The way from a GlobalManager to the model of the API: requests and answers that may be lost.

`ApiTransport` takes the place of edgeai.kube.transport.Transport; everything above it is the
shipped client. A request is carried out when it arrives, also when its sender has stopped waiting.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from multidict import CIMultiDict

from tests.simulation.api import Answer, Api, Watch
from tests.simulation.world import Process, VirtualTime, fail, succeed

LATENCY_S: Final = 0.01


class Weather:
    """How badly the API and the way to it work now. All are probabilities, or switches."""

    def __init__(self) -> None:
        self.lost_request = 0.0
        self.lost_answer = 0.0
        """The write happens, and its sender does not learn of it."""
        self.failing = 0.0
        """The API answers 500 or 429."""
        self.broken_watch = 0.0
        self.is_down = False
        self.unreachable: set[str] = set()  # processes that do not reach the API
        self.lag_s: dict[str, float] = {}
        """Process -> how late the API server that it asks tells changes to watches."""


class Response:
    """The part of aiohttp.ClientResponse that the shipped client uses."""

    def __init__(self, status: int, retry_after: str, body: "Body") -> None:
        self.status = status
        self.headers = CIMultiDict({"Retry-After": retry_after} if retry_after else {})
        self.content = body

    async def read(self) -> bytes:
        return b"".join([part async for part in self.content.iter_any()])


class Body:
    """The bytes of an answer, as they arrive. None in `parts` is the end."""

    def __init__(self) -> None:
        self._parts: deque[bytes | None] = deque()
        self._wake = asyncio.Event()
        self._is_broken = False

    def put(self, part: bytes | None) -> None:
        self._parts.append(part)
        self._wake.set()

    def break_(self) -> None:
        self._is_broken = True
        self._wake.set()

    async def readany(self) -> bytes:
        while not self._parts:
            if self._is_broken:
                raise ConnectionResetError("the connection broke")
            self._wake.clear()
            await self._wake.wait()
        if self._parts[0] is None:
            return b""
        return self._parts.popleft() or b""

    async def iter_any(self) -> AsyncIterator[bytes]:
        while part := await self.readany():
            yield part


class ApiTransport:
    source = "the simulation"

    def __init__(self, world: VirtualTime, process: Process, api: Api, weather: Weather) -> None:
        self._world, self._process, self._api, self._weather = world, process, api, weather
        self.replacement = asyncio.Event()
        self._bodies: dict[Body, None] = {}

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None = None,
        **_: str,
    ) -> AsyncIterator[Response]:
        answered: asyncio.Future[Response] = self._process.create_future()
        content = Body()
        self._bodies[content] = None
        arrive = self._delay_s()
        draw = self._world.random.random
        weather = self._weather
        if weather.is_down:
            self._world.after(arrive, lambda: fail(answered, ConnectionRefusedError("it is down")))
        elif self._process.name in weather.unreachable or draw() < weather.lost_request:
            pass  # only the deadline ends this wait
        else:
            is_lost = draw() < weather.lost_answer
            self._world.after(
                arrive,
                lambda: self._arrive(method, path, dict(query), body, content, answered, is_lost),
            )
        try:
            yield await answered
        finally:
            self._bodies.pop(content, None)

    def _arrive(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: bytes | None,
        content: Body,
        answered: "asyncio.Future[Response]",
        is_lost: bool,
    ) -> None:
        """The API carries out the request, and its answer begins its way back."""
        if self._world.random.random() < self._weather.failing:
            busy = self._world.chance(0.3)
            answer: Answer | Watch = Answer(429 if busy else 500, b"{}", "1" if busy else "")
        else:
            decoded = msgspec.json.decode(body) if body else None
            self._api.client = self._process.name
            answer = self._api.handle(method, path, query, decoded)
            self._api.client = ""
        if is_lost:
            if isinstance(answer, Watch):
                answer.is_open = False
            return
        if isinstance(answer, Watch):
            self._stream(answer, content, int(query["resourceVersion"]))
            response = Response(200, "", content)
        else:
            content.put(answer.body)
            content.put(None)
            response = Response(answer.status, answer.retry_after, content)
        self._world.after(self._delay_s(), lambda: succeed(answered, response))

    def _stream(self, watch: Watch, content: Body, since: int) -> None:
        last_at = 0.0

        def deliver(line: bytes | None) -> None:
            nonlocal last_at
            if self._process.name in self._weather.unreachable or not self._process.is_alive:
                watch.is_open = False  # and silent from now on; its deadline ends it
                return
            if line is not None and self._world.random.random() < self._weather.broken_watch:
                watch.is_open = False
                self._world.after(self._delay_s(), content.break_)
                return
            late_s = self._delay_s() + self._weather.lag_s.get(self._process.name, 0.0)
            last_at = max(last_at, self._world.now + late_s)
            part = None if line is None else line + b"\n"
            self._world.after(last_at - self._world.now, lambda: content.put(part))

        watch.deliver = deliver
        self._api.catch_up(watch, since)

    def _delay_s(self) -> float:
        return self._world.delay_s(LATENCY_S)

    # ---- the rest of Transport ------------------------------------------------------------------

    def anew(self) -> "ApiTransport":
        return ApiTransport(self._world, self._process, self._api, self._weather)

    async def take_over(self, other: "ApiTransport") -> None:
        """Use a new connection: whatever waits on the old one fails."""
        for body in tuple(self._bodies):
            body.break_()
        replacement, self.replacement = self.replacement, asyncio.Event()
        replacement.set()

    async def renew(self) -> None: ...

    async def close(self) -> None: ...
