"""The way of one TCP connection to where it may speak HTTP: first the lobby, then TLS.

Made by the server for each connection that it accepts. A connection is counted from here on, so
that neither silence nor half a TLS handshake takes more than a place in the lobby; and TLS is
begun no faster than connections are admitted, for each handshake costs milliseconds of a core.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import cast

from common.errors import Overloaded
from common.logs import get_logger
from common.ratelimit import TokenBucket
from globalmanager.edge.door.admission import AddressPaces, Lobby, Visit
from globalmanager.edge.door.complaints import Complaint
from globalmanager.edge.door.connection import CLOSE_TIMEOUT_S, EdgeConnection
from globalmanager.edge.door.tls import ServerTls, reason_of

log = get_logger(__name__)


class TlsGate:
    """Does the TLS handshakes of one server.

    Args:
        pace: of handshakes; who would have to wait for too long is turned away
        paces: … of those from one address
        open_s: a handshake, and the wait for it, takes no longer
        failed: called for each connection that got no TLS
    """

    def __init__(
        self,
        tls: ServerTls,
        *,
        pace: TokenBucket,
        paces: AddressPaces,
        open_s: float,
        failed: Callable[[], None],
    ) -> None:
        self._tls = tls
        self._pace = pace
        self._paces = paces
        self._open_s = open_s
        self._failed = failed
        self._failure = Complaint("TLS handshake failed")
        self._under_way: set[asyncio.Task[None]] = set()
        self._closed = False

    def begin(self, tcp: socket.socket, visit: Visit, guest: EdgeConnection) -> None:
        """Start the handshake on `tcp`, which is the gate's from here on."""
        if self._closed:
            visit.leave()
            tcp.close()
            return
        task = asyncio.create_task(self._handshake(tcp, visit, guest), name="edge TLS handshake")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def close(self) -> None:
        self._closed = True
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _handshake(self, tcp: socket.socket, visit: Visit, guest: EdgeConnection) -> None:
        try:
            async with asyncio.timeout(self._open_s):
                await self._wait_for_turn(tcp, visit.address)
                await self._hand_over(tcp, guest)
        except (Overloaded, OSError) as error:  # ssl.SSLError and TimeoutError are OSErrors
            visit.leave()
            self._note(visit.address, error)
        except asyncio.CancelledError:
            visit.leave()
            raise

    async def _wait_for_turn(self, tcp: socket.socket, address: str) -> None:
        try:
            await self._paces.of(address).acquire()
            await self._pace.acquire()
        except BaseException:
            tcp.close()
            raise

    async def _hand_over(self, tcp: socket.socket, guest: EdgeConnection) -> None:
        """To the loop, which closes `tcp` whatever comes of it."""
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: guest,
            tcp,
            ssl=self._tls.context(),
            ssl_handshake_timeout=self._open_s,
            ssl_shutdown_timeout=CLOSE_TIMEOUT_S,
        )

    def _note(self, address: str, error: Exception) -> None:
        self._failed()
        if isinstance(error, ssl.SSLError):
            self._failure.warn(peer=address, reason=reason_of(error))
        else:  # a probe that says nothing, a peer that went away, or too many at once
            log.debug("no TLS handshake", peer=address, reason=str(error))


class Entrance(asyncio.Protocol):
    """Args:
    guest: what the connection is handed to
    gate: None: HTTP is spoken at once
    """

    def __init__(self, guest: EdgeConnection, *, lobby: Lobby, gate: TlsGate | None) -> None:
        self._guest = guest
        self._lobby = lobby
        self._gate = gate

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        peer = transport.get_extra_info("peername")
        visit = self._lobby.enter(str(peer[0]) if peer else "")
        if visit is None:
            transport.abort()
            return
        self._guest.visit = visit
        if self._gate is None:
            transport.set_protocol(self._guest)
            self._guest.connection_made(transport)
            return
        # Nothing was read yet; the gate goes on with the socket, this transport ends.
        try:
            tcp = duplicate(transport)
        except OSError as error:  # no file descriptor is left
            visit.leave()
            log.error("connection turned away", reason=error.strerror)
        else:
            self._gate.begin(tcp, visit, self._guest)
        transport.abort()


def duplicate(transport: asyncio.Transport) -> socket.socket:
    """A socket of the same connection, which outlives the transport. Raises: OSError"""
    accepted = transport.get_extra_info("socket")
    return socket.fromfd(accepted.fileno(), accepted.family, accepted.type)
