"""Limits the open connections of a server, so that strangers cannot fill its memory.

When all connections are in use, a new connection takes the place of another one (see
edgeai.connections). So clients that are idle, slow or many keep nobody of another address out.
"""

import asyncio
from collections.abc import Hashable
from typing import Protocol

from prometheus_client import Counter

from common.clock import loop_time
from common.rate_limited_warning import RateLimitedWarning
from common.ratelimit import TokenBuckets
from edgeai.connections import Connections, Stage


class Connection(Hashable, Protocol):
    """The connection of one client."""

    def abort(self) -> None:
        """End the connection at once, without the bytes that wait to be sent."""


class BoundedConnections:
    """The open connections of one server.

    Args:
        cuts: counts the connections that ended because there was no room
        arrivals: rate of the connections of one address. A connection beyond it ends at once. None:
            any rate
    """

    def __init__(
        self,
        limit: int,
        *,
        server: str,
        cuts: Counter,
        arrivals: TokenBuckets | None = None,
    ) -> None:
        self._connections: Connections[Connection] = Connections(limit=limit)
        self._server = server
        self._cuts = cuts
        self._arrivals = arrivals
        self._warning = RateLimitedWarning("too many connections, closed one")

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, connection: Connection, transport: asyncio.BaseTransport) -> bool:
        """Make room for a new connection. Returns: whether there is room"""
        address = peer_address(transport)
        now = loop_time()
        if self._arrivals is not None and not self._arrivals.bucket(address, now).admits(now):
            self._count_cut(address)
            return False
        victim = self._connections.add(connection, address)
        if victim is not None:
            self._count_cut(address)
        if victim is connection:
            return False
        if victim is not None:
            victim.abort()
        return True

    def _count_cut(self, newcomer: str) -> None:
        self._cuts.inc()
        self._warning.log(server=self._server, newcomer=newcomer)

    def remove(self, connection: Connection) -> None:
        self._connections.remove(connection)

    def set_stage(self, connection: Connection, stage: Stage) -> None:
        self._connections.set_stage(connection, stage)


def peer_address(transport: asyncio.BaseTransport | None) -> str:
    """The IP address of the client; "" when the connection has ended."""
    peer = transport.get_extra_info("peername") if transport else None
    return str(peer[0]) if peer else ""
