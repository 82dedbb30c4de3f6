"""A proxy before the Kubernetes API that answers some requests itself, with an error."""

import contextlib
from collections.abc import AsyncIterator, Callable

import aiohttp
from aiohttp import web

from tests.support.http_server import headers_of, passing_on, serving

Answers = Callable[[str, str], int]
"""Method and path -> the HTTP status of an error; 0: the API answers."""


class FaultyApi:
    def __init__(self, target: str, answers: Answers) -> None:
        self._target, self._answers = target, answers
        self.url = ""
        self._session: aiohttp.ClientSession

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FaultyApi"]:
        timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as self._session,
            serving(self._handle) as self.url,
        ):
            yield self

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if status := self._answers(request.method, request.path):
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
            return web.json_response(body, status=status)
        async with passing_on(request, self._session, self._target) as answer:
            response = web.StreamResponse(status=answer.status, headers=headers_of(answer))
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response
