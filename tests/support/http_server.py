"""An HTTP server of a test on loopback, and a way through it to another server."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import aiohttp
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_MAX_BYTES: Final = 64 * 1024 * 1024
_HOP_BY_HOP: Final = frozenset({"host", "connection", "transfer-encoding", "content-length"})


@asynccontextmanager
async def serving(
    handler: Handler, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """The server's URL. `handler` answers every request."""
    app = web.Application(client_max_size=_MAX_BYTES)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, 0, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def passing_on(
    request: web.Request, session: aiohttp.ClientSession, upstream: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer of the server at `upstream` to the same request."""
    headers = {k: text for k, text in request.headers.items() if k.lower() not in _HOP_BY_HOP}
    async with session.request(
        request.method,
        upstream + request.path_qs,
        headers=headers,
        data=await request.read() or None,
    ) as answer:
        yield answer


def headers_of(answer: aiohttp.ClientResponse) -> dict[str, str]:
    """Those that may be passed on."""
    return {k: text for k, text in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
