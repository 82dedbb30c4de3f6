"""An HTTP server on loopback for tests: the test sets the answers, and sees the requests."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers each request with `answer`, and keeps it in `requests`."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[web.Request] = []
        self.released = asyncio.Event()  # answers that take long wait for this event
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        return await self.answer(request)


@contextlib.asynccontextmanager
async def serving(answer: Answer, *, also_at: str = "") -> AsyncIterator[Server]:
    """Args: also_at: another address with the same port"""
    server = Server(answer)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = runner.addresses[0][1]
    if also_at:
        await web.TCPSite(runner, also_at, server.port).start()
    try:
        yield server
    finally:
        server.released.set()
        await runner.cleanup()
