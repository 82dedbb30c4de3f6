"""An HTTP server on loopback for tests: the test sets the answers, and sees the requests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers each request with `answer`, and keeps it in `requests`."""

    def __init__(self, answer: Answer, host: str) -> None:
        self.answer = answer
        self.host = host
        self.requests: list[web.Request] = []
        self.released = asyncio.Event()  # answers that take long wait for this event
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        return await self.answer(request)


@contextlib.asynccontextmanager
async def serving(answer: Answer, host: str = "127.0.0.1") -> AsyncIterator[Server]:
    server = Server(answer, host)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, 0)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        server.released.set()
        await runner.cleanup()
