"""The HTTP server of the REST API: limits size and rate of requests, and connections."""

from collections.abc import Sequence
from typing import Final, Self

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import Counter, Gauge

from common.bounded_connections import BoundedConnections
from common.logs import get_logger
from common.metric_table import MetricTable, Row
from common.ratelimit import WaitingRoom
from edgeai.errors import Overloaded
from globalmanager.edge.door.admission import AddressBuckets
from globalmanager.rest.connections import BoundedListener, mark_requests, server_logger
from globalmanager.rest.errors import answer_errors, error_answer, forbid_caching
from globalmanager.rest.routes import Route
from globalmanager.rest.streams import abort

log = get_logger(__name__)

MAX_LINE_BYTES: Final = 4096  # request line; the longest path has three names of 253 bytes
MAX_FIELD_BYTES: Final = 8190  # one header
MAX_HEADERS: Final = 64
MAX_FORM_BYTES: Final = 16 * 1024
KEEPALIVE_S: Final = 30.0
STOP_TIMEOUT_S: Final = 3.0


class RestMetrics(MetricTable):
    """All metrics of the REST server; one instance for each registry."""

    connections = Row(Gauge, "edgeai_rest_connections")
    """Open connections of the REST API"""
    connections_cut = Row(Counter, "edgeai_rest_connections_cut")
    """Connections of the REST API that ended because there was no room, or because their address
    opened too many"""
    requests_delayed = Row(Counter, "edgeai_rest_requests_delayed")
    """Requests that waited, because their address sent too many"""


class RestLimits(msgspec.Struct, frozen=True, kw_only=True):
    connections: int = 256
    """Most open connections; a new one then takes the place of another one."""
    per_address_per_s: float = 100.0
    """Requests per second of one IP address (IPv6: one /64) that are answered. Further requests
    wait. A request costs about 0.2 ms, also for a caller without a token, and the sessions of the
    nodes share the process."""
    per_address_burst: int = 200
    """Requests of one address that are answered without a pause."""
    arrivals: int = 2
    """Connections of one address that are accepted, for each of its requests that is answered. So a
    client with a connection for each request is not cut off, but waits, unless it sends more than
    twice as much as is answered."""
    max_wait_s: float = 10.0
    """Longest wait of a request. A request that would wait longer ends its connection, else a
    client that leaves and comes again would leave ever more requests behind."""


class RestServer:
    """Serves `routes` inside `async with`."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        routes: Sequence[Route],
        metrics: RestMetrics,
        limits: RestLimits = RestLimits(),  # noqa: B008 - frozen
    ) -> None:
        self._host, self._port = host, port
        self._connections = BoundedConnections(
            limits.connections,
            server="REST API",
            cuts=metrics.connections_cut,
            arrivals=AddressBuckets(
                qps=limits.arrivals * limits.per_address_per_s,
                burst=limits.arrivals * limits.per_address_burst,
                max_wait_s=0.0,
                part="REST API",
            ),
        )
        metrics.connections.set_function(lambda: len(self._connections))
        self._runner = web.AppRunner(
            application(routes, RequestRate(limits, metrics)),
            access_log=None,
            logger=server_logger("globalmanager.rest.http"),
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_FIELD_BYTES,
            max_headers=MAX_HEADERS,
            keepalive_timeout=KEEPALIVE_S,
            lingering_time=0,  # do not wait for the rest of a body that nobody reads
            shutdown_timeout=STOP_TIMEOUT_S,
        )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the server. For port 0 this is the port that the system chose."""
        if not self._runner.addresses:
            return self._host, self._port
        host, port, *_ = self._runner.addresses[0]
        return str(host), int(port)

    async def __aenter__(self) -> Self:
        """Begin to listen. Raises: OSError when the process cannot listen on the address"""
        await self._runner.setup()
        await BoundedListener(self._runner, self._host, self._port, self._connections).start()
        log.info("REST API listening", address="{}:{}".format(*self.address))
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._runner.cleanup()


class RequestRate:
    """Lets the requests of one address wait, so that they take a small share of the event loop.

    A request that would wait too long ends its connection without an answer.
    """

    def __init__(self, limits: RestLimits, metrics: RestMetrics) -> None:
        buckets = AddressBuckets(
            qps=limits.per_address_per_s,
            burst=limits.per_address_burst,
            max_wait_s=limits.max_wait_s,
            part="REST API",
        )
        # A connection has one request at a time, so all beyond are of clients that have left.
        self._room = WaitingRoom(
            buckets,
            limit=limits.connections,
            server="REST API",
            delays=metrics.requests_delayed,
        )

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            await self._room.wait(request.remote or "")
        except Overloaded as error:
            abort(request)
            return error_answer(429, str(error))
        return await handler(request)

    async def close(self, _app: web.Application) -> None:
        """Let no request delay the end of the process."""
        self._room.close()


def application(routes: Sequence[Route], rate: RequestRate) -> web.Application:
    middlewares = [mark_requests, rate.middleware, answer_errors]
    app = web.Application(middlewares=middlewares, client_max_size=MAX_FORM_BYTES)
    app.on_response_prepare.append(forbid_caching)
    app.on_shutdown.append(rate.close)
    for route in routes:
        add = app.router.add_post if route.method == "POST" else app.router.add_get
        add(route.path, route.handler)
    return app
