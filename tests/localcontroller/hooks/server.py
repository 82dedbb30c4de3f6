"""An HTTP server on loopback for tests: the test sets the answers, and sees the requests."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web

from tests.support import http_server

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers each request with `answer`, and keeps it in `requests`."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[web.Request] = []
        self.released = asyncio.Event()  # answers that take long wait for this event
        self.url = ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        return await self.answer(request)


@contextlib.asynccontextmanager
async def serving(
    answer: Answer, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    server = Server(answer)
    async with http_server.serving(server.handle, host, tls) as server.url:
        try:
            yield server
        finally:
            server.released.set()
