"""Limits the open connections of an aiohttp server, so that strangers cannot fill its memory.

The REST API of the GlobalManager and both APIs of the LocalController listen through
BoundedListener. When all connections are in use, a new connection takes the place of another one
(see edgeai.connections). So clients that are idle, slow or many keep nobody of another address out.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler
from prometheus_client import Counter

from common.rate_limited_warning import RateLimitedWarning
from common.ratelimit import TokenBuckets
from edgeai.connections import Connections, Stage
from edgeai.errors import Overloaded

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

    for filter_ in list(logger.filters):
        logger.removeFilter(filter_)
    logger.addFilter(is_logged)
    return logger


class BoundedConnections:
    """The open connections of one server.

    Args:
        limit: most open connections
        server: name of the server, for the log
        cuts: counts the connections that ended because there was no room
        arrivals: rate of the connections of one address. A connection beyond it ends at once. None:
            any rate
    """

    def __init__(
        self,
        limit: int,
        *,
        server: str,
        cuts: Counter,
        arrivals: TokenBuckets | None = None,
    ) -> None:
        self._connections: Connections[_Connection] = Connections(limit=limit)
        self._of_handler: dict[web.RequestHandler, _Connection] = {}
        self._server = server
        self._cuts = cuts
        self._arrivals = arrivals
        self._warning = RateLimitedWarning("too many connections, closed one")

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: "_Connection", address: str) -> bool:
        """Make room for a new connection. Returns: whether there is room"""
        if not self._may_arrive(address):
            self._cuts.inc()
            self._warning.log(server=self._server, newcomer=address)
            return False
        victim = self._connections.add(connection, address)
        if victim is not None:
            self._cuts.inc()
            self._warning.log(server=self._server, newcomer=address)
        if victim is connection:
            return False
        self._of_handler[connection.handler] = connection
        if victim is not None:
            self._of_handler.pop(victim.handler, None)
            victim.abort()
        return True

    def _may_arrive(self, address: str) -> bool:
        if self._arrivals is None:
            return True
        now = asyncio.get_running_loop().time()
        try:
            self._arrivals.bucket(address, now).reserve(now)
        except Overloaded:
            return False
        return True

    def remove(self, connection: "_Connection") -> None:
        self._connections.remove(connection)
        self._of_handler.pop(connection.handler, None)

    def set_stage(self, connection: "_Connection", stage: Stage) -> None:
        self._connections.set_stage(connection, stage)

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Tells a connection whose request is under way from an idle one. A request under way ends
        only for a client of an address that has fewer connections.
        """
        connection = self._of_handler.get(request.protocol)
        if connection is None:  # cut meanwhile
            return await handler(request)
        self.set_stage(connection, Stage.READING)
        try:
            return await handler(request)
        finally:
            self.set_stage(connection, Stage.IDLE)


class Place:
    """The place of a diverted connection among the bounded connections. Another connection may
    take the place while the diverted one has it: then the diverted one is aborted.
    """

    def __init__(self, connection: "_Connection", connections: BoundedConnections) -> None:
        self._connection, self._connections = connection, connections

    def leave(self) -> None:
        """Free the place, because the connection has ended, or counts elsewhere from now on."""
        self._connections.remove(self._connection)


Divert = Callable[[bytes, Place], asyncio.Protocol | None]
"""Gets the first bytes of a connection. Returns: the protocol that takes the connection over and
calls `leave` of its place; None: the connection is for aiohttp."""


class BoundedListener(web.BaseSite):
    """An aiohttp site on host and port, as web.TCPSite, with bounded connections.

    Args: divert: takes connections that are not for aiohttp
    """

    def __init__(
        self,
        runner: web.AppRunner,
        host: str,
        port: int,
        connections: BoundedConnections,
        divert: Divert | None = None,
    ) -> None:
        super().__init__(runner, backlog=BACKLOG)
        self._host, self._port = host, port
        self._connections = connections
        self._divert = divert

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
            lambda: _Connection(server(), self._connections, self._divert),
            self._host,
            self._port,
            backlog=self._backlog,
        )


class _Connection(asyncio.Protocol):
    """Passes the events of one connection on to aiohttp, if there is room for the connection."""

    def __init__(
        self, handler: web.RequestHandler, connections: BoundedConnections, divert: Divert | None
    ) -> None:
        self.handler = handler
        self._connections = connections
        self._divert = divert  # None after the first bytes, too
        self._transport: asyncio.Transport | None = None
        self._has_room = False

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer: Any = transport.get_extra_info("peername")
        self._has_room = self._connections.add(self, str(peer[0]) if peer else "")
        if self._has_room:
            self.handler.connection_made(transport)
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._has_room and not self._is_diverted(data):
            self.handler.data_received(data)

    def _is_diverted(self, first: bytes) -> bool:
        divert, self._divert = self._divert, None
        transport = self._transport
        if divert is None or transport is None:
            return False
        other = divert(first, Place(self, self._connections))
        if other is None:
            return False
        self._connections.set_stage(self, Stage.READING)
        self.handler.transport = None  # else connection_lost closes it
        self.handler.connection_lost(None)
        other.connection_made(transport)
        transport.set_protocol(other)
        other.data_received(first)
        return True

    def eof_received(self) -> None:
        if self._has_room:
            self.handler.eof_received()

    def pause_writing(self) -> None:
        self.handler.pause_writing()

    def resume_writing(self) -> None:
        self.handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._has_room:
            self._connections.remove(self)
            self.handler.connection_lost(exc)
