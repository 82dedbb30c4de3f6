"""The WebSocket server for LocalControllers: admits connections, and closes them when it stops.

It answers handshakes (health, admission, identity), passes authenticated connections to Sessions or
Relays, and reviews the credentials of live ones. It never reads a frame.
"""

import asyncio
import functools
import socket
from http import HTTPStatus
from typing import Any, Final, Protocol, cast

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from common import wire
from common.clock import loop_time
from common.logs import get_logger
from common.rate_limited_warning import RateLimitedWarning
from common.ratelimit import TokenBucket
from common.relay import frames as relay_frames
from edgeai.errors import Overloaded, Unavailable
from globalmanager.edge.door.admission import (
    AddressBuckets,
    AdmissionLimits,
    FreeHandshakes,
    Lobby,
    Turnstile,
    retry_after,
)
from globalmanager.edge.door.connection import CLOSE_TIMEOUT_S, EdgeConnection
from globalmanager.edge.door.entrance import Entrance, TlsGate
from globalmanager.edge.door.tls import ServerTls, peer_certificate
from globalmanager.edge.identity.handshake import (
    NODE_HEADER,
    Authenticator,
    Handshake,
    Unauthenticated,
)
from globalmanager.edge.identity.reviews import Admitted, Reviews
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.registry import Sessions
from globalmanager.edge.sessions.relay import Relays

log = get_logger(__name__)

SUBPROTOCOLS: Final = (wire.SUBPROTOCOL, relay_frames.SUBPROTOCOL)
AUTHORIZATION: Final = "Authorization"
SESSION_PATH: Final = "/"
HEALTH_PATH: Final = "/healthz"
# TCP ends a connection when the peer acknowledges no data for this time
USER_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 5.0
# Connections of one address that are read, per admission of the address. So most edges of a site
# that come back together learn by 503 when to try again.
ARRIVALS: Final = 5
# Handshakes that begin in one pass of the event loop. One costs about 0.5 ms, with TLS 2 ms.
HANDSHAKES_PER_PASS: Final = 8
# Connections that the kernel holds until the process accepts them, as far as net.core.somaxconn
# allows. A node waits here longer than it takes to accept, so a fleet that comes back finds room.
BACKLOG: Final = 1024
# Received messages that wait for the session. At this number TCP makes the peer send slower.
QUEUED_MESSAGES: Final = 4


class Replica(Protocol):
    """What this replica can do."""

    def can_open_sessions(self) -> bool:
        """Whether this replica knows the present desired set of every node."""

    def can_serve_edges(self) -> bool:
        """Whether this replica knows a desired set of every node, which may be out of date."""


class EdgeServer:
    """Listens on one address from `start` to `stop`.

    Args:
        tls: None when a proxy in front of the GlobalManager terminates TLS
        review_s: seconds between two reviews of a live session's credential
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        sessions: Sessions,
        relays: Relays,
        authenticator: Authenticator,
        replica: Replica,
        metrics: EdgeMetrics,
        limits: AdmissionLimits = AdmissionLimits(),  # noqa: B008 - frozen
        tls: ServerTls | None = None,
        review_s: float = 60.0,
    ) -> None:
        self._host, self._port = host, port
        self._sessions = sessions
        self._relays = relays
        self._authenticator = authenticator
        self._replica = replica
        self._metrics = metrics
        self._limits = limits
        self._turnstile = Turnstile(per_pass=HANDSHAKES_PER_PASS)
        # of each subprotocol one: a node has a session, and a relay beside it
        self._free = {subprotocol: FreeHandshakes() for subprotocol in SUBPROTOCOLS}
        self._gate = None if tls is None else self._tls_gate(tls)
        self._bucket = self._new_bucket(max_wait_s=0.0)
        self._buckets = self._new_address_buckets(max_wait_s=0.0)
        self._arrivals = self._new_address_buckets(max_wait_s=0.0, factor=ARRIVALS)
        self._stranger_warning = RateLimitedWarning("peer not authenticated")
        self._unavailable_warning = RateLimitedWarning("peers cannot be authenticated now")
        self._refusals = metrics.handshakes.labels("no room")
        self._reviews = Reviews(authenticator, interval_s=review_s, metrics=metrics)
        self._reviewing: asyncio.Task[None] | None = None
        if tls is not None:
            metrics.certificate_expiry.labels("edge port").set_function(tls.expires_at)
            metrics.certificate_expiry.labels("nodes").set_function(self._reviews.first_expiry)
        self.lobby = Lobby(
            total=limits.unauthenticated, per_address=limits.unauthenticated_per_address
        )
        self._server: Server | None = None
        self._connections: set[EdgeConnection] = set()

    @property
    def address(self) -> tuple[str, int]:
        """The host and port on which the server listens; for port 0 that of the system's choice."""
        if self._server is None:
            return self._host, self._port
        name = self._server.sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def start(self) -> None:
        """Begin to listen. Raises: OSError when the process cannot listen on the address"""
        server = await serve(
            self._handle,
            self._host,
            self._port,
            subprotocols=[Subprotocol(name) for name in SUBPROTOCOLS],
            compression=None,
            process_request=self._process_request,
            server_header=None,
            open_timeout=self._phase_s,
            ping_interval=None,  # both sides of a session send beats instead of pings
            close_timeout=CLOSE_TIMEOUT_S,
            max_size=wire.MAX_FRAME_BYTES,
            max_queue=QUEUED_MESSAGES,
            create_connection=cast(type[ServerConnection], self._entrance),
            backlog=BACKLOG,
            start_serving=False,
        )
        for listener in server.sockets:  # accepted connections inherit the option
            listener.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(USER_TIMEOUT_S * 1000)
            )
        await server.start_serving()
        self._server = server
        self._reviewing = asyncio.create_task(self._reviews.run(), name="review of credentials")
        log.info("listening for LocalControllers", address="{}:{}".format(*self.address))

    async def stop(self) -> None:
        """Close all sessions with GOING_AWAY. Abort the connection of a peer without an answer."""
        if self._server is None:
            return
        if self._reviewing is not None:
            self._reviewing.cancel()
            await asyncio.gather(self._reviewing, return_exceptions=True)
        if self._gate is not None:
            await self._gate.close()
        for connection in list(self._connections):
            if connection.node is None:
                connection.transport.abort()
        self._server.close(code=wire.Close.GOING_AWAY, reason="GlobalManager is stopping")
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._server.wait_closed()
        except TimeoutError:
            for connection in list(self._connections):
                connection.transport.abort()
            await self._server.wait_closed()

    async def __aenter__(self) -> "EdgeServer":
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    # ---- connections ----

    @property
    def _phase_s(self) -> float:
        """Longest time in seconds of TLS, and of the HTTP request; together `open_s`."""
        return self._limits.open_s if self._gate is None else self._limits.open_s / 2

    def _new_bucket(self, *, max_wait_s: float) -> TokenBucket:
        limits = self._limits
        return TokenBucket(
            qps=limits.per_s, burst=limits.burst, max_wait_s=max_wait_s, part="edge server"
        )

    def _new_address_buckets(self, *, max_wait_s: float, factor: int = 1) -> AddressBuckets:
        limits = self._limits
        return AddressBuckets(
            qps=factor * limits.per_address_per_s,
            burst=factor * limits.per_address_burst,
            max_wait_s=max_wait_s,
            part="edge server, for one address,",
        )

    def _tls_gate(self, tls: ServerTls) -> TlsGate:
        max_wait_s = self._limits.open_s / 4
        return TlsGate(
            tls,
            bucket=self._new_bucket(max_wait_s=max_wait_s),
            buckets=self._new_address_buckets(max_wait_s=max_wait_s),
            turnstile=Turnstile(per_pass=HANDSHAKES_PER_PASS),
            open_s=self._limits.open_s / 2,
            failures=self._metrics.handshakes.labels("no TLS"),
        )

    def _entrance(self, *args: Any, **kwargs: Any) -> Entrance:
        connection = EdgeConnection(*args, everyone=self._connections, **kwargs)
        return Entrance(
            connection,
            lobby=self.lobby,
            gate=self._gate,
            arrivals=self._arrivals,
            refusals=self._refusals,
        )

    async def _handle(self, websocket: ServerConnection) -> None:
        connection = cast(EdgeConnection, websocket)
        node, handshake = connection.node, connection.admitted_by
        if node is None or handshake is None:
            raise AssertionError("a connection without a node was accepted")
        connection.forget_handshake()
        server: Sessions | Relays = self._sessions
        if connection.subprotocol == relay_frames.SUBPROTOCOL:
            server = self._relays
        admitted = Admitted(node, handshake, functools.partial(server.revoke, node, connection))
        self._reviews.add(admitted)
        try:
            await server.serve(node, connection)
        except Exception:  # a bug in one session must not stop the server
            log.exception("session failed", node=node)
            connection.transport.abort()
        finally:
            self._reviews.discard(admitted)

    # ---- handshake ----

    async def _process_request(
        self, websocket: ServerConnection, request: Request
    ) -> Response | None:
        """The response to a health check or a refused request; None: the session may begin."""
        connection = cast(EdgeConnection, websocket)
        if request.path == HEALTH_PATH:
            return connection.respond(HTTPStatus.OK, "ok\n")
        refusal = self._check_admission(connection, request)
        if refusal is None:
            await self._turnstile.enter()
            refusal = await self._authenticate(connection, request)
        outcome = "admitted" if refusal is None else str(refusal.status_code)
        self._metrics.handshakes.labels(outcome).inc()
        return refusal

    def _check_admission(self, connection: EdgeConnection, request: Request) -> Response | None:
        """Check all conditions that do not depend on the node. Returns: a refusal, or None"""
        if request.path != SESSION_PATH:
            return connection.respond(
                HTTPStatus.NOT_FOUND, f"nothing here; sessions are at {SESSION_PATH}\n"
            )
        offers = set(SUBPROTOCOLS) & set(offered_subprotocols(request))
        if not offers:
            required = " or ".join(SUBPROTOCOLS)
            return connection.respond(
                HTTPStatus.BAD_REQUEST, f"subprotocol {required} is required\n"
            )
        is_session, replica = wire.SUBPROTOCOL in offers, self._replica
        is_ready = replica.can_open_sessions() if is_session else replica.can_serve_edges()
        if not is_ready:
            return unavailable(connection, retry_after(self._limits.cold_retry_s))
        try:
            now = loop_time()
            connection.toll.pay(self._buckets.bucket(connection.peer_address, now), now)
            connection.toll.pay(self._bucket, now)
        except Overloaded:
            return unavailable(connection, retry_after(self._limits.busy_retry_s))
        for name in (AUTHORIZATION, NODE_HEADER):
            if len(request.headers.get_all(name)) > 1:
                return connection.respond(
                    HTTPStatus.BAD_REQUEST, f"header {name} came more than once\n"
                )
        return None

    async def _authenticate(self, connection: EdgeConnection, request: Request) -> Response | None:
        """Find the node of the connection by the credential. Returns: a refusal, or None"""
        handshake = Handshake(
            authorization=request.headers.get(AUTHORIZATION, ""),
            claimed_node=request.headers.get(NODE_HEADER, ""),
            peer_address=connection.peer_address,
            certificate=peer_certificate(connection.transport.get_extra_info("ssl_object")),
        )
        try:
            node = await self._authenticator.authenticate(handshake)
        except Unauthenticated as error:
            self._stranger_warning.log(peer=handshake.peer_address, reason=error.reason)
            return unauthorized(connection)
        except Unavailable as error:
            self._unavailable_warning.log(problem=str(error))
            return unavailable(connection, retry_after(self._limits.busy_retry_s))
        offers = offered_subprotocols(request)
        free = next(self._free[name] for name in SUBPROTOCOLS if name in offers)
        if free.take(node, loop_time()):
            connection.toll.give_back()
        wait_s = self._sessions.must_wait_s(node)
        if wait_s is not None:
            return unavailable(connection, str(wait_s))
        connection.node, connection.admitted_by = node, handshake
        connection.leave_lobby()
        return None


def offered_subprotocols(request: Request) -> list[str]:
    offers = ",".join(request.headers.get_all("Sec-WebSocket-Protocol"))
    return [offer.strip() for offer in offers.split(",")]


def unauthorized(connection: ServerConnection) -> Response:
    response = connection.respond(HTTPStatus.UNAUTHORIZED, "unauthorized\n")
    response.headers["WWW-Authenticate"] = "Bearer"
    return response


def unavailable(connection: ServerConnection, retry_after_s: str) -> Response:
    response = connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "try again later\n")
    response.headers["Retry-After"] = retry_after_s
    return response
