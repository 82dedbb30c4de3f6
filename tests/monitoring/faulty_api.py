"""A proxy before the Kubernetes API that answers some requests itself, with an error."""

import contextlib
from collections.abc import AsyncIterator, Callable

import aiohttp
from aiohttp import web

Answers = Callable[[str, str], int]
"""Method and path -> the HTTP status of an error; 0: the API answers."""
_HOP: frozenset[str] = frozenset({"connection", "content-length", "host", "transfer-encoding"})


class FaultyApi:
    def __init__(self, target: str, answers: Answers) -> None:
        self._target, self._answers = target, answers
        self.url = ""
        self._session: aiohttp.ClientSession

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FaultyApi"]:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as self._session:
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.url = "http://{}:{}".format(*runner.addresses[0][:2])
                yield self
            finally:
                await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if status := self._answers(request.method, request.path):
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
            return web.json_response(body, status=status)
        headers = {name: text for name, text in request.headers.items() if name.lower() not in _HOP}
        async with self._session.request(
            request.method,
            self._target + request.path_qs,
            headers=headers,
            data=await request.read(),
        ) as answer:
            kept = {name: text for name, text in answer.headers.items() if name.lower() not in _HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response
