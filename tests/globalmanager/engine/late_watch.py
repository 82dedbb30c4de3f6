"""A way to the API on which the watch of one resource is late and everything else is not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp
import msgspec
from aiohttp import web

from edgeai.api.resources import Object
from tests.support.http_server import passing_on, serving


class Created(NamedTuple):
    """One POST of an object that has an owner."""

    plural: str
    owner: str  # uid
    owner_name: str


class Gone(NamedTuple):
    """One answer that an object is not there."""

    name: str


class LateWatch:
    """A reverse proxy on loopback in front of the API server at `upstream`.

    It passes every request on. Lines of the watch of `plural` wait until `flowing` is set.
    """

    def __init__(self, upstream: str, plural: str, session: aiohttp.ClientSession) -> None:
        self._upstream, self._plural, self._session = upstream, plural, session
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.one_by_one = False
        """Whether `flowing` is cleared again after each line."""
        self.waiting = 0
        """Lines that arrived while the watch was held back."""
        self.told: list[Created | Gone] = []
        """Creations as they were asked for, and absences of `plural` as they were answered."""
        self.url = ""

    @property
    def created(self) -> list[Created]:
        return [each for each in self.told if isinstance(each, Created)]

    def created_after_gone(self, owner: str) -> list[Created]:
        """What was created for the uid after an answer that nothing had its name."""
        gone: set[str] = set()
        found = []
        for each in self.told:
            if isinstance(each, Gone):
                gone.add(each.name)
            elif each.owner == owner and each.owner_name in gone:
                found.append(each)
        return found

    async def handle(self, request: web.Request) -> web.StreamResponse:
        plural = request.path.split("/")[-1]
        if request.method == "POST":
            self._note_creation(plural, await request.read())
        async with passing_on(request, self._session, self._upstream) as answer:
            if "watch" in request.query:
                return await self._stream(request, answer, held=plural == self._plural)
            if answer.status == 404 and f"/{self._plural}/" in request.path:
                self.told.append(Gone(request.path.split(f"/{self._plural}/")[1].split("/")[0]))
            return web.Response(
                status=answer.status, body=await answer.read(), content_type=answer.content_type
            )

    def _note_creation(self, plural: str, body: bytes) -> None:
        metadata: Object = msgspec.json.decode(body)["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            self.told.append(Created(plural, owner["uid"], owner["name"]))

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, *, held: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status)
        response.content_type = answer.content_type
        await response.prepare(request)
        async for line in answer.content:
            if held and not self.flowing.is_set():
                self.waiting += 1
                await self.flowing.wait()
            await response.write(line)
            if held and self.one_by_one:
                self.flowing.clear()
        return response


@asynccontextmanager
async def serve_late_watch(upstream: str, plural: str) -> AsyncIterator[LateWatch]:
    async with aiohttp.ClientSession() as session:
        late = LateWatch(upstream, plural, session)
        async with serving(late.handle) as late.url:
            try:
                yield late
            finally:
                late.flowing.set()
