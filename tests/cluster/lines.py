"""Lines that a test can watch, cut and lay anew: a manager to the API, an edge to the managers."""

import asyncio
import contextlib
import http
import itertools
import json
import math
import re
import ssl
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from edgeai.demo.cutting_proxy import CuttingProxy
from tests.support.kubeconfig import write_kubeconfig

_REQUEST: Final = re.compile(rb"([A-Z]+) (/\S*) HTTP/1\.1\r\n")
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d+) ")
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_READ: Final = "GET"


class Request(NamedTuple):
    method: str
    path: str
    body: bytes
    raw: bytes
    """All of it."""
    sent_at: float
    """When the client sent it, on the monotonic clock; a line that is cut passes it on later."""

    @property
    def is_watch(self) -> bool:
        return "watch=true" in self.path

    def is_watch_of(self, plural: str) -> bool:
        return self.is_watch and urlsplit(self.path).path.endswith(f"/{plural}")


class Passed(NamedTuple):
    """A request that passed, or its answer."""

    request: Request
    status: int | None
    """Of the answer; None: this is the request."""


class Refusal(NamedTuple):
    """What an API server answers that cannot do what it is asked for."""

    status: http.HTTPStatus
    retry_after_s: int | None = None

    def encoded(self) -> bytes:
        told = {"kind": "Status", "code": self.status, "message": self.status.description}
        body = json.dumps(told).encode()
        head = [
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *([] if self.retry_after_s is None else [f"Retry-After: {self.retry_after_s}"]),
        ]
        return "\r\n".join([*head, "", ""]).encode() + body


class ApiLine(CuttingProxy):
    """HTTP on the near side, the API server's TLS on the far one.

    It keeps the writes that pass, and when anything was asked for, be it answered or not. It can
    refuse everything in the API server's name, and pass everything on late (`delay_s`), or what one
    resource's watch tells (`late_watch`, `late_s`).
    """

    def __init__(self, url: str, *, ca: Path) -> None:
        address = urlsplit(url)
        self._host, self._api_port = address.hostname or "", address.port or 443
        self._tls = ssl.create_default_context(cafile=str(ca))
        super().__init__(lambda: (self._host, self._api_port))
        self.writes: list[Request] = []
        self.asked_at: list[float] = []  # of requests, and of connections that were refused
        self.refused: list[tuple[float, Request]] = []
        """What was refused in the server's name, and when, on the monotonic clock."""
        self._refusals: Iterator[Refusal] | None = None
        self._near: set[asyncio.StreamWriter] = set()
        self._forgotten: set[asyncio.StreamWriter] = set()
        self.delay_s = 0.0
        self.late_watch = ""  # plural
        self.late_s = 0.0
        self.passed: list[Passed] = []
        """In the order of time; without watches."""
        self._unanswered: dict[asyncio.StreamWriter, Request] = {}  # by the near side

    def write_kubeconfig(self, path: Path, *, token: str) -> Path:
        """Of a client on the near side."""
        return write_kubeconfig(path, f"http://127.0.0.1:{self.port}", token)

    def asked(self, since: float, until: float = math.inf) -> int:
        """How often anything was asked for in between, on the monotonic clock."""
        return sum(since <= at < until for at in self.asked_at)

    def refuse(self, *refusals: Refusal) -> None:
        """Whatever is asked for, with each in turn; without any: no more."""
        self._refusals = itertools.cycle(refusals) if refusals else None

    def forget(self) -> None:
        """The connections that there are: nothing passes any more, and nobody is told."""
        self._forgotten |= self._near

    def bury(self) -> None:
        """Tell of those."""
        self._call(self._bury())

    async def _bury(self) -> None:
        for writer in self._forgotten:
            writer.transport.abort()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self._host, self._api_port, ssl=self._tls)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_refusing:
            self.asked_at.append(time.monotonic())
            writer.transport.abort()
            return
        self.connections += 1
        self._writers.add(writer)
        self._near.add(writer)
        try:
            await self._answer_all(reader, writer)
        finally:
            self._writers.discard(writer)
            self._near.discard(writer)
            self._forgotten.discard(writer)
            self._unanswered.pop(writer, None)
            writer.close()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client sends a request only after the answer to the last one."""
        far: asyncio.StreamWriter | None = None
        async with asyncio.TaskGroup() as group:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while not writer.is_closing():
                    request = await self._next_request(reader)
                    await self._passing.wait()
                    if writer in self._forgotten:
                        continue
                    if self._refusals is not None:
                        self.refused.append((time.monotonic(), request))
                        writer.write(next(self._refusals).encoded())
                        continue
                    await asyncio.sleep(self.delay_s)
                    if far is None:
                        far_reader, far = await self._dial()
                        self._writers.add(far)
                        group.create_task(self._answer(far_reader, writer))
                    if request.method != _READ:
                        self.writes.append(request)
                    self._unanswered[writer] = request
                    if not request.is_watch:
                        self.passed.append(Passed(request, None))
                    far.write(request.raw)
            if far is not None:
                self._writers.discard(far)
                far.transport.abort()  # a TLS farewell might outlast the proxy

    async def _answer(self, far: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        late_s = 0.0
        with contextlib.suppress(OSError):
            while data := await far.read(65536):
                await self._passing.wait()
                if near in self._forgotten:
                    return
                if (request := self._unanswered.pop(near, None)) is not None:
                    late_s = self.late_s if request.is_watch_of(self.late_watch) else 0.0
                    status = _STATUS.match(data)
                    assert status is not None, data
                    if not request.is_watch:
                        self.passed.append(Passed(request, int(status.group(1))))
                if late_s:
                    asyncio.get_running_loop().call_later(late_s, near.write, data)
                    continue
                near.write(data)
                await near.drain()
        asyncio.get_running_loop().call_later(late_s, near.close)

    async def _next_request(self, reader: asyncio.StreamReader) -> Request:
        head = await reader.readuntil(b"\r\n\r\n")
        sent_at = time.monotonic()
        self.asked_at.append(sent_at)
        line, length = _REQUEST.match(head), _LENGTH.search(head)
        assert line is not None, head
        body = await reader.readexactly(int(length.group(1)) if length else 0)
        method, path = (group.decode() for group in line.groups())
        return Request(method, path, body, head + body, sent_at)


class Road(CuttingProxy):
    """An edge's way to one of the managers: the first, and after each dial the next one."""

    def __init__(self) -> None:
        self._order: Sequence[str] = ()
        self._dials = 0
        super().__init__(self._next)

    def lead_to(self, *addresses: str) -> None:
        """HOST:PORT of the managers, the first of which is dialled first."""
        self._order, self._dials = addresses, 0

    def _next(self) -> tuple[str, int]:
        host, _, port = self._order[self._dials % len(self._order)].rpartition(":")
        self._dials += 1
        return host, int(port)
