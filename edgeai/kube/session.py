"""The HTTP session of a transport: connections to the API server that take little memory.

A connection with TLS reads into a buffer of 256 KiB (uvloop), and decrypts from another one that
grows (OpenSSL). What once was full stays in memory until the connection ends, and the watches keep
some 30 connections for ever. While the process is busy, much arrives at once, and the memory of a
connection grows from 40 KiB to 400 KiB. So the kernel gets a small buffer for each connection, no
more than that arrives at once, and the memory stays below 110 KiB. A request takes the connection
that was used last, so that those of a busy moment end soon after it.
"""

import socket
import ssl
from typing import Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey

# A watch event of the largest object fits.
_READ_BUFFER_BYTES: Final = 2 * 1024 * 1024
# Every watch occupies one connection. All other requests share the rest.
_MAX_CONNECTIONS: Final = 256
RECEIVE_BYTES: Final = 16 * 1024
"""The kernel's buffer for what has arrived on one connection. Linux doubles this number. One
connection thus receives 16 MB a second from a server 2 ms away, and 0.3 MB from one 100 ms away."""


def plain_session(tls: ssl.SSLContext | None) -> aiohttp.ClientSession:
    """A session without cookies. It does not read .netrc and the environment for each request,
    which costs more than all other work of a session for a request.

    Args:
        tls: None for a server without TLS
    """
    return aiohttp.ClientSession(
        connector=_Connector(
            limit=_MAX_CONNECTIONS, ssl=True if tls is None else tls, socket_factory=_socket
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=_READ_BUFFER_BYTES,
    )


class _Connector(aiohttp.TCPConnector):
    """Connections of which the one that was used last is used next.

    aiohttp uses them in turn. Then each of them is used again before it has been idle for so long
    that it is closed, and there are for ever as many as there once were requests at a time.
    """

    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        super()._release(key, protocol, should_close=should_close)
        idle = self._conns.get(key)
        if idle and idle[-1][0] is protocol:
            idle.rotate(1)  # aiohttp takes the first one


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    new = socket.socket(family, kind, protocol)
    # before the connection, because the server is told the largest window then
    new.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    return new
