"""Limits for new connections of edges: connections at the same time, and handshakes per second.

A connection over a limit costs almost nothing and gets a Retry-After header. It pays for its
handshake before the server knows who is there. A node gets the payment back, once a minute. So the
rates limit strangers, and nodes that come again and again, and a fleet that reconnects comes in as
fast as the processor can.
"""

import asyncio
import math
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

import msgspec

from common.rate_limited_warning import RateLimitedWarning
from common.ratelimit import TokenBucket, TokenBuckets
from edgeai.addresses import network_of
from edgeai.ids import NodeName
from edgeai.newest import NewestKeys

FREE_AGAIN_S: Final = 60.0
REMEMBERED_NODES: Final = 20_000


class AdmissionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits for connections that are not authenticated yet."""

    per_s: float = 100.0
    """Average handshakes per second that are not given back. One with TLS costs 2 ms of a core."""
    burst: int = 200
    """Handshakes that may arrive at the same moment after a pause."""
    per_address_per_s: float = 10.0
    """The same from one address, so that one stranger cannot use up the whole rate."""
    per_address_burst: int = 20
    """Handshakes from one address that may arrive at the same moment after a pause."""
    unauthenticated: int = 256
    """Largest number of connections that are not authenticated yet."""
    unauthenticated_per_address: int = 16
    """The same from one IP address (IPv6: one /64)."""
    open_s: float = 10.0
    """Longest time in seconds from the TCP connection to the answered handshake, TLS included."""
    busy_retry_s: float = 10.0
    """Mean of the Retry-After header in seconds, for a connection over these limits."""
    cold_retry_s: float = 5.0
    """The same until this replica knows what the nodes must hold."""


class LobbyPlace:
    """The place of one connection in the lobby."""

    def __init__(self, address: str, lobby: "Lobby") -> None:
        self.address = address
        self._lobby: Lobby | None = lobby  # None when the place is free

    def leave(self) -> None:
        """Free the place for another connection. Later calls do nothing."""
        if self._lobby is not None:
            self._lobby.leave(self.address)
            self._lobby = None


class Lobby:
    """Counts the connections that are not authenticated yet, in total and by address."""

    def __init__(self, *, total: int, per_address: int) -> None:
        self._total, self._per_address = total, per_address
        self._peers: Counter[str] = Counter()
        self._warning = RateLimitedWarning("too many peers are not authenticated yet")

    def __len__(self) -> int:
        return self._peers.total()

    def enter(self, address: str) -> LobbyPlace | None:
        """A place for one connection, which must `leave` it; None when the lobby is full."""
        network = network_of(address)
        # `get` leaves no entry behind for an address without a place
        if len(self) >= self._total or self._peers.get(network, 0) >= self._per_address:
            return None
        self._peers[network] += 1
        return LobbyPlace(address, self)

    def warn(self, address: str) -> None:
        """Log a connection that finds no place, at a bounded rate."""
        self._warning.log(peer=address, unauthenticated=len(self))

    def leave(self, address: str) -> None:
        network = network_of(address)
        self._peers[network] -= 1
        if not self._peers[network]:
            del self._peers[network]


class AddressBuckets(TokenBuckets):
    """One token bucket for each address. The bucket limits what comes from its address."""

    def bucket(self, address: str, now: float) -> TokenBucket:
        return super().bucket(network_of(address), now)


class Toll:
    """The tokens that one connection has paid."""

    __slots__ = ("_paid",)

    def __init__(self) -> None:
        self._paid: list[TokenBucket] = []

    def pay(self, bucket: TokenBucket, now: float) -> float:
        """Returns: seconds to wait before the connection may go on. Raises: Overloaded"""
        wait_s = bucket.reserve(now)
        self._paid.append(bucket)
        return wait_s

    def give_back(self) -> None:
        for bucket in self._paid:
            bucket.give_back()
        self._paid.clear()


class FreeHandshakes:
    """One free handshake for each node in FREE_AGAIN_S: if it comes again and again, it pays."""

    def __init__(self) -> None:
        self._last = NewestKeys[NodeName, float](REMEMBERED_NODES)

    def take(self, node: NodeName, now: float) -> bool:
        """Returns: whether this handshake of `node` is free. Args: now: monotonic seconds"""
        if now < self._last.get(node, -math.inf) + FREE_AGAIN_S:
            return False
        self._last[node] = now
        return True


def retry_after(mean_s: float, uniform: Callable[[float, float], float] = random.uniform) -> str:
    """The value of a Retry-After header: whole seconds, random around `mean_s`, so that those who
    were refused together do not come back together.
    """
    return str(math.ceil(uniform(0.5 * mean_s, 1.5 * mean_s)))


class Turnstile:
    """Lets a few handshakes begin in each pass of the event loop.

    After a restart thousands of nodes come back at one instant. Sessions are served between two
    passes, so an open session waits for a few handshakes and not for all of them.

    Args: per_pass: handshakes that begin in one pass of the event loop
    """

    def __init__(self, *, per_pass: int) -> None:
        self._per_pass = per_pass
        self._entered = 0  # in this pass
        self._turns: deque[asyncio.Future[None]] = deque()  # the lobby bounds their number
        self._is_scheduled = False

    async def enter(self) -> None:
        """Wait for a turn, first come, first served."""
        if self._entered < self._per_pass and not self._turns:
            self._let_in()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        await turn

    def _let_in(self) -> None:
        self._entered += 1
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._next_pass)

    def _next_pass(self) -> None:
        self._entered, self._is_scheduled = 0, False
        while self._turns and self._entered < self._per_pass:
            turn = self._turns.popleft()
            if not turn.done():  # done: the connection has ended meanwhile
                turn.set_result(None)
                self._let_in()
