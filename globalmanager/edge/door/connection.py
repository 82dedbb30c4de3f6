"""One connection of the edge server: WebSocket's own, not listened to before it was answered.

Made by the server, handed its transport by Entrance. Until a handshake is answered with 101, not
one byte behind the request is read as a frame.
"""

import asyncio
from typing import Any, Final

from websockets.asyncio.server import ServerConnection
from websockets.protocol import CONNECTING

from common.ids import NodeName
from globalmanager.edge.door.admission import Visit
from globalmanager.edge.identity.handshake import Handshake

MAX_HEAD_BYTES: Final = 16 * 1024  # request line and headers; a ServiceAccount token has 1-2 KiB
MAX_UNREAD_BYTES: Final = 1024 * 1024  # sends wait at 32 KiB: only pongs nobody reads go beyond
CLOSE_TIMEOUT_S: Final = 0.8  # a peer that was turned away is cut within a second


class EdgeConnection(ServerConnection):
    """A connection that was let into the lobby, as `visit` says, and leaves it once it is known."""

    def __init__(self, *args: Any, everyone: "set[EdgeConnection]", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.visit: Visit | None = None
        self.node: NodeName | None = None
        self.shown: Handshake | None = None  # what `node` was found from
        self._everyone = everyone  # all connections of the server, this one while it lasts
        self._head = b""

    @property
    def peer_address(self) -> str:
        return self.visit.address if self.visit else ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._everyone.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._everyone.discard(self)
        self.leave_lobby()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.protocol.state is CONNECTING and self._speaks_early(data):
            # RFC 6455 §4.1: a client sends nothing until it has the answer to its handshake.
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
        """Let go of what is needed no more: of thousands of sessions, each keeps it for hours."""
        for message in (self.request, self.response):
            if message is not None:
                message.headers.clear()
        certificate = self.transport.get_extra_info("peercert")
        if certificate:
            certificate.clear()

    def leave_lobby(self) -> None:
        self._head = b""
        if self.visit is not None:
            self.visit.leave()
