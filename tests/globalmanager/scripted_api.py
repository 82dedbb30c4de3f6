"""A Kubernetes API that misbehaves on demand: real HTTP on loopback, each answer scripted.

For faults only; what a healthy API does is tested against edgeai.localcluster.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from tests.support.http_server import serving
from tests.support.waiting import async_eventually

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScriptedApi:
    """Answers the n-th list with the n-th of `lists`, and so on; the last one for ever.

    Anything else than a list or a watch is answered from `others`.
    """

    def __init__(self) -> None:
        self.lists: list[Answer] = []
        self.watches: list[Answer] = []
        self.others: list[Answer] = []
        self.seen: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.url = ""
        self.released = asyncio.Event()  # ends every hanging answer

    def paths(self, kind: str) -> list[web.Request]:
        """The requests of one kind: "list", "watch" or "other"."""
        return [request for request in self.seen if _kind(request) == kind]

    async def wait_for(self, kind: str, count: int) -> None:
        """Until there were so many requests of that kind, and no more."""

        def check() -> bool:
            seen = [request.path_qs for request in self.paths(kind)]
            assert len(seen) == count, f"{len(seen)}: {seen}"
            return True

        await async_eventually(f"{count} {kind} requests", check)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        kind = _kind(request)
        answers = {"list": self.lists, "watch": self.watches, "other": self.others}[kind]
        if not answers:
            return web.Response(status=500, text=f"no {kind} was scripted")
        number = len(self.paths(kind)) - 1
        return await answers[min(number, len(answers) - 1)](request)

    def json(self, body: Any, status: int = 200, **headers: str) -> Answer:
        async def answer(_request: web.Request) -> web.StreamResponse:
            return web.Response(
                status=status,
                body=msgspec.json.encode(body),
                content_type="application/json",
                headers=headers,
            )

        return answer

    def failure(self, code: int, reason: str, message: str = "", **headers: str) -> Answer:
        status = {"kind": "Status", "code": code, "reason": reason, "message": message}
        return self.json(status, code, **{k.replace("_", "-"): v for k, v in headers.items()})

    def text(self, text: str, status: int = 200) -> Answer:
        async def answer(_request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, text=text, content_type="text/html")

        return answer

    def listing(self, *objects: Any, version: int, more: str = "") -> Answer:
        metadata = {"resourceVersion": str(version), "continue": more}
        return self.json({"metadata": metadata, "items": list(objects)})

    def hang(self) -> Answer:
        async def answer(_request: web.Request) -> web.StreamResponse:
            await self.released.wait()
            return web.Response(status=500)

        return answer

    def stream(self, *pieces: Any, then: str = "end") -> Answer:
        """A watch: dicts as lines, bytes as they are; then "end", "hang" or "cut"."""

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            for piece in pieces:
                raw = piece if isinstance(piece, bytes) else msgspec.json.encode(piece) + b"\n"
                await response.write(raw)
            if then == "hang":
                await self.released.wait()
            if then == "cut" and request.transport is not None:
                request.transport.abort()
            return response

        return answer


@asynccontextmanager
async def serve_scripted() -> AsyncIterator[ScriptedApi]:
    api = ScriptedApi()
    async with serving(api.handle) as api.url:
        try:
            yield api
        finally:
            api.released.set()


def _kind(request: web.Request) -> str:
    if request.query.get("watch"):
        return "watch"
    return "list" if request.method == "GET" and "limit" in request.query else "other"
