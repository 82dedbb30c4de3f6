"""One connection of the edge server: a WebSocket that hears nothing before it is answered.

Made by the server, given its transport by Entrance. Until the handshake is answered with 101, no
byte that follows the request is read as a frame.
"""

import asyncio
from typing import Any, Final

from websockets.asyncio.server import ServerConnection
from websockets.protocol import CONNECTING

from common.ids import NodeName
from globalmanager.edge.door.admission import LobbyPlace
from globalmanager.edge.identity.handshake import Handshake

MAX_HEAD_BYTES: Final = 16 * 1024  # request line and headers; a ServiceAccount token has 1-2 KiB
# Our own sends wait at 32 KiB of unsent data, so only pongs that the peer does not read pass that.
MAX_UNREAD_BYTES: Final = 1024 * 1024
CLOSE_TIMEOUT_S: Final = 0.8  # a peer that was turned away is cut off within a second


class EdgeConnection(ServerConnection):
    """A connection that has a place in the lobby until it is authenticated.

    Args: everyone: all connections of the server; this one is in it while it lasts
    """

    def __init__(self, *args: Any, everyone: "set[EdgeConnection]", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.place: LobbyPlace | None = None  # in the lobby
        self.node: NodeName | None = None  # once it is authenticated
        self.admitted_by: Handshake | None = None  # with which it was authenticated
        self._everyone = everyone
        self._head = b""  # of the request, as far as it has come

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
        """Whether something follows the request, or the request is too long."""
        self._head += data
        if len(self._head) > MAX_HEAD_BYTES:
            return True
        _, _, rest = self._head.partition(b"\r\n\r\n")
        return bool(rest)

    def forget_handshake(self) -> None:
        """Free the headers and the certificate: there may be thousands of sessions for hours."""
        for message in (self.request, self.response):
            if message is not None:
                message.headers.clear()
        certificate = self.transport.get_extra_info("peercert")
        if certificate:
            certificate.clear()

    def leave_lobby(self) -> None:
        self._head = b""
        if self.place is not None:
            self.place.leave()
