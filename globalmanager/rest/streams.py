"""Sends large answers piece by piece, so that readers who do not read take little memory.

An answer is encoded while its reader takes it, one piece after the other. The number of pieces in
memory is bounded over all connections, and for each address. A reader who takes nothing for
`write_s`, or is not done after `answer_s`, loses its connection.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Final

import msgspec
from aiohttp import web

from common.logs import get_logger
from edgeai.addresses import network_of
from globalmanager.rest.routes import JSON

log = get_logger(__name__)

PIECE_BYTES: Final = 64 * 1024  # small objects share a piece; a large object is a piece of its own
_TCP_USER_TIMEOUT: Final = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux


class StreamLimits(msgspec.Struct, frozen=True, kw_only=True):
    pieces: int = 8
    """Pieces that are encoded and not yet taken. The largest is the largest object, 2 MiB."""
    pieces_per_address: int = 2
    """The same number for one IP address (IPv6: one /64), so that one reader cannot hold all."""
    write_s: float = 10.0
    """Longest time in seconds until a reader has taken PIECE_BYTES."""
    answer_s: float = 120.0
    """Longest time in seconds for one whole answer, with the wait for other readers."""


class Streams:
    """Sends answers. All answers share one limit of pieces."""

    def __init__(self, limits: StreamLimits = StreamLimits()) -> None:  # noqa: B008 - frozen
        self._limits = limits
        self._of_address: Counter[str] = Counter()
        self._pieces = 0
        self.queue_length = 0  # answers that wait until the others leave room for a piece
        self._freed = asyncio.Condition()

    async def send(
        self, request: web.Request, pieces: Iterable[Callable[[], bytes]]
    ) -> web.StreamResponse:
        """Send one JSON document. Args: pieces: each encodes a part of the document"""
        response = web.StreamResponse()
        response.content_type = JSON
        limit_writes(request, self._limits.write_s)
        try:
            async with asyncio.timeout(self._limits.answer_s):
                await response.prepare(request)
                for encode in pieces:
                    async with self._place(network_of(request.remote or "")):
                        await self._write(response, encode())
                await response.write_eof()
        except TimeoutError:
            log.warning("reader of REST is too slow, connection aborted", address=request.remote)
            abort(request)
        except ConnectionError:  # the reader has gone
            abort(request)
        except Exception:
            if not response.prepared:
                raise
            # No other answer can follow the beginning of this one.
            log.exception("answer cannot be encoded, connection aborted", path=request.path)
            abort(request)
        return response

    async def _write(self, response: web.StreamResponse, piece: bytes) -> None:
        """Raises: TimeoutError"""
        view = memoryview(piece)
        for start in range(0, len(piece), PIECE_BYTES):
            async with asyncio.timeout(self._limits.write_s):
                await response.write(view[start : start + PIECE_BYTES])

    @contextlib.asynccontextmanager
    async def _place(self, address: str) -> AsyncIterator[None]:
        """A place for one piece in memory."""
        async with self._freed:
            self.queue_length += 1
            try:
                await self._freed.wait_for(partial(self._has_capacity, address))
            finally:
                self.queue_length -= 1
            self._pieces += 1
            self._of_address[address] += 1
        try:
            yield
        finally:
            self._pieces -= 1
            self._of_address -= Counter([address])  # leaves no zero behind
            async with self._freed:
                self._freed.notify_all()

    def _has_capacity(self, address: str) -> bool:
        is_free = self._pieces < self._limits.pieces
        return is_free and self._of_address[address] < self._limits.pieces_per_address


def list_pieces(
    metadata: object, items: Iterable[Callable[[], object | None]]
) -> Iterator[Callable[[], bytes]]:
    """The pieces of {"metadata": …, "items": […]}.

    Args: items: each function returns an item, or None when the item is gone meanwhile
    """
    iterator = iter(items)
    is_first = True
    is_done = False

    def head() -> bytes:
        return b'{"metadata":' + msgspec.json.encode(metadata) + b',"items":['

    def part() -> bytes:
        nonlocal is_first, is_done
        piece = bytearray()
        for item in iterator:
            if (value := item()) is not None:
                if not is_first:
                    piece += b","
                is_first = False
                piece += msgspec.json.encode(value)
            if len(piece) >= PIECE_BYTES:
                return bytes(piece)
        is_done = True
        return bytes(piece) + b"]}"

    yield head
    while not is_done:
        yield part


def abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def limit_writes(request: web.Request, seconds: float) -> None:
    """Let the kernel end a connection that takes nothing: no deadline runs after the answer."""
    connection = None if request.transport is None else request.transport.get_extra_info("socket")
    if connection is not None and _TCP_USER_TIMEOUT is not None:
        milliseconds = round(1000 * seconds)
        connection.setsockopt(socket.IPPROTO_TCP, _TCP_USER_TIMEOUT, milliseconds)
