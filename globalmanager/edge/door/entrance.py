"""Takes an accepted TCP connection through the lobby and TLS, before the connection speaks HTTP.

The connection has a place in the lobby from the start, also when the peer sends nothing or stops in
the TLS handshake. A rate limits TLS handshakes like admissions: each costs milliseconds of a core.
"""

import asyncio
import socket
import ssl
from typing import cast

from prometheus_client import Counter

from common.clock import loop_time
from common.logs import get_logger
from common.rate_limited_warning import RateLimitedWarning
from common.ratelimit import TokenBucket
from edgeai.errors import Overloaded
from globalmanager.edge.door.admission import AddressBuckets, Lobby, LobbyPlace, Toll, Turnstile
from globalmanager.edge.door.connection import CLOSE_TIMEOUT_S, EdgeConnection
from globalmanager.edge.door.tls import ServerTls, reason_of

log = get_logger(__name__)


class TlsGate:
    """Performs the TLS handshakes of one server.

    Args:
        bucket, buckets: rates of all handshakes, and of those from one address. The gate closes a
            connection that would wait too long
        open_s: longest time of a handshake in seconds, including the wait for the rate
        failures: counts the connections whose TLS handshake failed
    """

    def __init__(
        self,
        tls: ServerTls,
        *,
        bucket: TokenBucket,
        buckets: AddressBuckets,
        turnstile: Turnstile,
        open_s: float,
        failures: Counter,
    ) -> None:
        self._tls = tls
        self._bucket = bucket
        self._buckets = buckets
        self._turnstile = turnstile
        self._open_s = open_s
        self._failures = failures
        self._warning = RateLimitedWarning("TLS handshake failed")
        self._under_way: set[asyncio.Task[None]] = set()
        self._closed = False

    def begin(self, tcp: socket.socket, place: LobbyPlace, connection: EdgeConnection) -> None:
        """Start the TLS handshake on `tcp`. The gate closes `tcp` when the handshake fails."""
        if self._closed:
            place.leave()
            tcp.close()
            return
        handshake = self._handshake(tcp, place, connection)
        task = asyncio.create_task(handshake, name="edge TLS handshake")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        self._closed = True
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _handshake(
        self, tcp: socket.socket, place: LobbyPlace, connection: EdgeConnection
    ) -> None:
        try:
            async with asyncio.timeout(self._open_s):
                await self._wait_for_turn(tcp, place.address, connection.toll)
                await self._hand_over(tcp, connection)
        except (Overloaded, OSError) as error:  # ssl.SSLError and TimeoutError are OSErrors
            place.leave()
            self._note(place.address, error)
        except asyncio.CancelledError:
            place.leave()
            raise

    async def _wait_for_turn(self, tcp: socket.socket, address: str, toll: Toll) -> None:
        loop = asyncio.get_running_loop()
        try:
            for bucket in (self._buckets.bucket(address, loop.time()), self._bucket):
                wait_s = toll.pay(bucket, loop.time())
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
            await self._turnstile.enter()
        except BaseException:
            tcp.close()
            raise

    async def _hand_over(self, tcp: socket.socket, connection: EdgeConnection) -> None:
        """Let the event loop perform the handshake and run `connection`. It closes `tcp`."""
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection,
            tcp,
            ssl=self._tls.context(),
            ssl_handshake_timeout=self._open_s,
            ssl_shutdown_timeout=CLOSE_TIMEOUT_S,
        )

    def _note(self, address: str, error: Exception) -> None:
        self._failures.inc()
        if isinstance(error, ssl.SSLError):
            self._warning.log(peer=address, reason=reason_of(error))
        else:  # the peer sent nothing or left, or too many handshakes came at once
            log.debug("no TLS handshake", peer=address, reason=str(error))


class Entrance(asyncio.Protocol):
    """The asyncio protocol of a TCP connection until TLS begins.

    Args:
        connection: takes over, after TLS if there is a gate
        arrivals: rate of the connections from one address. A connection beyond this rate ends at
            once, because also the refusal of a request costs the process time
        refusals: counts the connections for which there is no room, or no rate
    """

    def __init__(
        self,
        connection: EdgeConnection,
        *,
        lobby: Lobby,
        gate: TlsGate | None,
        arrivals: AddressBuckets,
        refusals: Counter,
    ) -> None:
        self._connection = connection
        self._lobby = lobby
        self._gate = gate
        self._arrivals = arrivals
        self._refusals = refusals

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's class has no such base class
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if peer else ""
        place = self._lobby.enter(address) if self._may_arrive(address) else None
        if place is None:
            self._refusals.inc()
            self._lobby.warn(address)
            transport.abort()
            return
        self._connection.place = place
        if self._gate is None:
            transport.set_protocol(self._connection)
            self._connection.connection_made(transport)
            return
        # The gate goes on with a copy of the socket, of which no byte was read. This one ends.
        try:
            tcp = duplicate(transport)
        except OSError as error:  # the process has no free file descriptor
            place.leave()
            log.error("connection turned away", reason=error.strerror)
        else:
            self._gate.begin(tcp, place, self._connection)
        transport.abort()

    def _may_arrive(self, address: str) -> bool:
        try:
            now = loop_time()
            self._connection.toll.pay(self._arrivals.bucket(address, now), now)
        except Overloaded:
            return False
        return True


def duplicate(transport: asyncio.Transport) -> socket.socket:
    """A second socket of the TCP connection, which the transport leaves open. Raises: OSError"""
    own = transport.get_extra_info("socket")
    return socket.fromfd(own.fileno(), own.family, own.type)
