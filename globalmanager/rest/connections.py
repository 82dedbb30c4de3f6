"""Lets an aiohttp server listen with bounded connections."""

import asyncio
import logging
from typing import Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

from common.bounded_connections import BoundedConnections
from common.rate_limited_warning import RateLimitedWarning
from edgeai.connections import Stage

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


@web.middleware
async def mark_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tells a connection whose request is under way from an idle one. A request under way ends
    only for a client of an address that has fewer connections.
    """
    connection = request.transport.get_protocol() if request.transport else None
    if not isinstance(connection, _Connection):  # cut meanwhile
        return await handler(request)
    connection.set_stage(Stage.READING)
    try:
        return await handler(request)
    finally:
        connection.set_stage(Stage.IDLE)


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
        self._transport: asyncio.Transport | None = None
        self._has_room = False

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def set_stage(self, stage: Stage) -> None:
        self._connections.set_stage(self, stage)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._has_room = self._connections.add(self, transport)
        if self._has_room:
            self._handler.connection_made(transport)
        else:
            self._transport.abort()

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
        self._transport = None
        if self._has_room:
            self._connections.remove(self)
            self._handler.connection_lost(exc)
