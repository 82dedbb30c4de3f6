"""The open connections of a server, and which of them ends when a new client needs room.

Not thread-safe. A connection that is answered is never ended; idle and slow ones keep nobody out.
"""

import enum
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import msgspec

from edgeai.addresses import network_of

Connection = TypeVar("Connection", bound=Hashable)


class Stage(enum.Enum):
    IDLE = enum.auto()
    """The client has not begun to send a request, or the next request."""
    READING = enum.auto()
    """The client has sent a part of a request."""
    ANSWERING = enum.auto()
    """The whole request is here."""


class Client(msgspec.Struct):
    """One connection.

    `address` is the client's network: one host may use all addresses of an IPv6 /64. `is_proven`:
    the server has answered a request of this connection.
    """

    address: str
    stage: Stage = Stage.IDLE
    is_proven: bool = False


class Connections(Generic[Connection]):
    """The clients of the open connections, oldest first."""

    def __init__(self, *, limit: int) -> None:
        self._limit = limit
        self._clients: dict[Connection, Client] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def add(self, connection: Connection, address: str) -> Connection | None:
        """Add a connection, and remove another connection if there are too many.

        Returns: the removed one, to be ended; `connection` itself if no other may end; None:
            there was room
        """
        address = network_of(address)
        victim = self._victim(address) if len(self._clients) >= self._limit else None
        if len(self._clients) >= self._limit and victim is None:
            return connection
        if victim is not None:
            del self._clients[victim]
        self._clients[connection] = Client(address)
        return victim

    def set_stage(self, connection: Connection, stage: Stage) -> None:
        client = self._clients.get(connection)
        if client is not None:
            client.is_proven |= client.stage is Stage.ANSWERING and stage is Stage.IDLE
            client.stage = stage

    def remove(self, connection: Connection) -> None:
        self._clients.pop(connection, None)

    def idle(self) -> list[Connection]:
        return self._where(lambda client: client.stage is Stage.IDLE)

    def is_any_busy(self) -> bool:
        return any(client.stage is not Stage.IDLE for client in self._clients.values())

    def _victim(self, newcomer: str) -> Connection | None:
        """The connection that ends for one of the address `newcomer`.

        The victim belongs to the address with the most connections that are not being answered. A
        connection that never had a whole request comes before a kept connection, and both come
        before a connection whose request is under way. A request under way ends only for an address
        that has fewer connections, also with the new one.
        """
        queue = Counter(
            client.address
            for client in self._clients.values()
            if client.stage is not Stage.ANSWERING
        )
        if not queue:
            return None
        crowded = max(queue, key=lambda address: queue[address])
        has_fewer = len(self._where(lambda _: True, newcomer)) + 1 < queue[crowded]
        candidates = (
            *self._where(lambda c: c.stage is Stage.IDLE and not c.is_proven, crowded),
            *self._where(lambda c: c.stage is Stage.IDLE, crowded),
            *self._where(lambda c: c.stage is Stage.READING and has_fewer, crowded),
        )
        return next(iter(candidates), None)

    def _where(self, is_wanted: Callable[[Client], bool], address: str = "") -> list[Connection]:
        return [
            connection
            for connection, client in self._clients.items()
            if is_wanted(client) and address in ("", client.address)
        ]
