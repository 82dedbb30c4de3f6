"""The HTTP server of the REST API. It listens on one address, and limits the size of requests and
the number of connections.

Run by app.
"""

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from common.http_connections import BoundedConnections, BoundedListener
from common.logs import get_logger
from globalmanager.rest.errors import answer_errors, forbid_caching
from globalmanager.rest.metrics import RestMetrics
from globalmanager.rest.routes import Route

log = get_logger(__name__)

MAX_LINE_BYTES: Final = 4096  # request line; the longest path has three names of 253 bytes
MAX_FIELD_BYTES: Final = 8190  # one header
MAX_HEADERS: Final = 64
KEEPALIVE_S: Final = 30.0
STOP_TIMEOUT_S: Final = 3.0
MAX_CONNECTIONS: Final = 256


class RestServer:
    """Serves `routes` from `start` to `stop`.

    Args: max_connections: most open connections; a new one then takes the place of another one
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        routes: Sequence[Route],
        metrics: RestMetrics,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._host, self._port = host, port
        self._connections = BoundedConnections(
            max_connections, what="REST API", on_cut=metrics.connections_cut.inc
        )
        metrics.connections.set_function(lambda: len(self._connections))
        self._runner = web.AppRunner(
            application(routes, self._connections),
            access_log=None,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_FIELD_BYTES,
            max_headers=MAX_HEADERS,
            keepalive_timeout=KEEPALIVE_S,
            lingering_time=0,  # do not wait for the rest of a body, because no request has a body
            shutdown_timeout=STOP_TIMEOUT_S,
        )

    @property
    def address(self) -> tuple[str, int]:
        """The host and port on which the server listens. For port 0 this is the port that the
        system chose.
        """
        if not self._runner.addresses:
            return self._host, self._port
        host, port, *_ = self._runner.addresses[0]
        return str(host), int(port)

    async def start(self) -> None:
        """Begin to listen. Raises: OSError when the process cannot listen on the address"""
        await self._runner.setup()
        await BoundedListener(self._runner, self._host, self._port, self._connections).start()
        log.info("REST API listening", address="{}:{}".format(*self.address))

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def __aenter__(self) -> "RestServer":
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()


def application(routes: Sequence[Route], connections: BoundedConnections) -> web.Application:
    app = web.Application(middlewares=[connections.middleware, answer_errors], client_max_size=1)
    app.on_response_prepare.append(forbid_caching)
    for route in routes:
        app.router.add_get(route.path, route.handler)
    return app
