"""One connection of the edge server: a WebSocket that accepts no frame before its handshake ends.

Any byte of the peer between its HTTP request and the server's answer 101 ends the connection.
"""

import asyncio
from typing import Any, Final

from websockets.protocol import CONNECTING

from common.version import release_of
from edgeai.ids import NodeName
from globalmanager.edge.door.admission import LobbyPlace, Toll
from globalmanager.edge.identity.handshake import Handshake
from globalmanager.edge.sessions.connection import SessionConnection

MAX_HEAD_BYTES: Final = 16 * 1024  # request line and headers; a ServiceAccount token has 1-2 KiB
# Unsent bytes of one connection. No frames are sent after 32 KiB of unsent data, so only pongs can
# reach this limit, when a peer sends pings and never reads.
MAX_UNREAD_BYTES: Final = 1024 * 1024
CLOSE_TIMEOUT_S: Final = 0.8  # the connection of a refused peer ends within a second


class EdgeConnection(SessionConnection):
    """A connection that has a place in the lobby until the connection is authenticated.

    Args: everyone: all open connections of the server. This connection adds and removes itself
    """

    def __init__(self, *args: Any, everyone: "set[EdgeConnection]", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.place: LobbyPlace | None = None  # the connection's place in the lobby
        self.toll = Toll()  # what the connection has paid for its handshake
        self.node: NodeName | None = None  # the node, when the node is authenticated
        self.admitted_by: Handshake | None = None  # the handshake that authenticated the node
        self._everyone = everyone
        self._head = b""  # bytes of the request that have arrived so far

    @property
    def peer_address(self) -> str:
        return self.place.address if self.place else ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._everyone.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._everyone.discard(self)
        self.leave_lobby()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.protocol.state is CONNECTING and self._speaks_early(data):
            # RFC 6455 §4.1: a client sends nothing before it has the answer to its handshake.
            self.transport.abort()
            return
        super().data_received(data)
        if self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.transport.abort()

    def _speaks_early(self, data: bytes) -> bool:
        """Whether the peer sent bytes after its request, or sent a request that is too long."""
        self._head += data
        if len(self._head) > MAX_HEAD_BYTES:
            return True
        _, _, rest = self._head.partition(b"\r\n\r\n")
        return bool(rest)

    def forget_handshake(self) -> None:
        """Free the memory of headers and certificate, because thousands of sessions may stay for
        hours, but keep what LocalController this is, and when its certificate ends.
        """
        if self.request is not None:
            self.release = release_of(self.request.headers.get("User-Agent", ""))
        for message in (self.request, self.response):
            if message is not None:
                message.headers.clear()
        if self.admitted_by is not None and self.admitted_by.certificate is not None:
            self.certificate_expires_at = self.admitted_by.certificate.expires_at
        certificate = self.transport.get_extra_info("peercert")
        if certificate:
            certificate.clear()

    def leave_lobby(self) -> None:
        self._head = b""
        if self.place is not None:
            self.place.leave()
