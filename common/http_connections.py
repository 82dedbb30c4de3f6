"""Limits the open connections of an aiohttp server, so that strangers cannot fill its memory.

The REST API of the GlobalManager and both APIs of the LocalController listen through
BoundedListener. When all connections are in use, a new connection takes the place of another one
(see common.connections). So clients that are idle, slow or many keep nobody of another address out.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from common.connections import Connections, Stage
from common.rate_limited_warning import RateLimitedWarning

BACKLOG: Final = 128  # connections that wait until the server accepts them


def server_logger(name: str) -> logging.Logger:
    """The logger of an aiohttp server. It tells of malformed requests at a limited rate and without
    their text: strangers send them, and the URL of a request may have a secret.
    """
    logger = logging.getLogger(name)
    warning = RateLimitedWarning("malformed request")

    def is_logged(record: logging.LogRecord) -> bool:
        if not record.exc_info or not isinstance(record.exc_info[1], HttpProcessingError):
            return True
        warning.log(server=name, problem=type(record.exc_info[1]).__name__)
        return False

    for known in list(logger.filters):
        logger.removeFilter(known)
    logger.addFilter(is_logged)
    return logger


class BoundedConnections:
    """The open connections of one server.

    Args:
        limit: most open connections
        what: name of the server, for the log
        on_cut: called for each connection that ended because there was no room
    """

    def __init__(self, limit: int, *, what: str, on_cut: Callable[[], None]) -> None:
        self._connections: Connections[web.RequestHandler] = Connections(limit=limit)
        self._what = what
        self._on_cut = on_cut
        self._warning = RateLimitedWarning("too many connections, one of them was cut")

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: web.RequestHandler, address: str) -> bool:
        """Make room for a new connection. Returns: whether there is room"""
        removed = self._connections.add(connection, address)
        if removed is None:
            return True
        self._on_cut()
        self._warning.log(server=self._what, newcomer=address)
        if removed is connection:
            return False
        if removed.transport is not None:
            removed.transport.abort()
        return True

    def remove(self, connection: web.RequestHandler) -> None:
        self._connections.remove(connection)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Tells a connection whose request is under way from an idle one. A request under way ends
        only for a client of an address that has fewer connections.
        """
        self._connections.set_stage(request.protocol, Stage.READING)
        try:
            return await handler(request)
        finally:
            self._connections.set_stage(request.protocol, Stage.IDLE)


class BoundedListener(web.BaseSite):
    """An aiohttp site on host and port, as web.TCPSite, with bounded connections."""

    def __init__(
        self, runner: web.AppRunner, host: str, port: int, connections: BoundedConnections
    ) -> None:
        super().__init__(runner, backlog=BACKLOG)
        self._host, self._port = host, port
        self._connections = connections

    @property
    def name(self) -> str:
        return f"http://{self._host}:{self._port}"

    async def start(self) -> None:
        """Begin to listen. Raises: OSError"""
        await super().start()
        server = self._runner.server
        if server is None:
            raise AssertionError("the runner is not set up")
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(server(), self._connections),
            self._host,
            self._port,
            backlog=self._backlog,
        )


class _Connection(asyncio.Protocol):
    """Passes the events of one connection on to aiohttp, if there is room for the connection."""

    def __init__(self, handler: web.RequestHandler, connections: BoundedConnections) -> None:
        self._handler = handler
        self._connections = connections
        self._has_room = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer: Any = transport.get_extra_info("peername")
        self._has_room = self._connections.add(self._handler, str(peer[0]) if peer else "")
        if self._has_room:
            self._handler.connection_made(transport)
        else:
            cast(asyncio.Transport, transport).abort()

    def data_received(self, data: bytes) -> None:
        if self._has_room:
            self._handler.data_received(data)

    def eof_received(self) -> None:
        if self._has_room:
            self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._has_room:
            self._connections.remove(self._handler)
            self._handler.connection_lost(exc)
