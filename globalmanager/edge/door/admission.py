"""How many connections may knock at a time, and how fast they are let in.

Pure counting, called by the server. What is not admitted costs almost nothing and is told when
to come back, so a fleet that reconnects at one instant is served in its turn.
"""

import ipaddress
import math
import random
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from common.ratelimit import TokenBucket

REMEMBERED_ADDRESSES: Final = 4096


class AdmissionLimits(msgspec.Struct, frozen=True, kw_only=True):
    per_s: float = 100.0
    """Handshakes answered per second in the long run; each costs about 2 ms of a core with TLS."""
    burst: int = 200
    """Handshakes that may come at once."""
    per_address_per_s: float = 10.0
    """… of which from one address: a stranger takes a part of them, a site behind NAT its time."""
    per_address_burst: int = 20
    unauthenticated: int = 256
    """Connections at a time that have not yet shown who they are."""
    unauthenticated_per_address: int = 16
    """… of which from one IP address."""
    open_s: float = 10.0
    """From the TCP connection to the answered handshake, TLS included."""
    busy_retry_s: float = 10.0
    """Mean of Retry-After while there is no room."""
    cold_retry_s: float = 5.0
    """Mean of Retry-After until this replica knows what its nodes must hold."""


class Visit:
    """One connection's place in the lobby."""

    def __init__(self, address: str, left: Callable[[str], None]) -> None:
        self.address = address
        self._left: Callable[[str], None] | None = left

    def leave(self) -> None:
        """Make room; again and again is as once."""
        if self._left is not None:
            self._left(self.address)
            self._left = None


class Lobby:
    """Connections that have not been authenticated yet: bounded in total and per address."""

    def __init__(self, *, total: int, per_address: int) -> None:
        self._total, self._per_address = total, per_address
        self._waiting: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._waiting.total()

    def enter(self, address: str) -> Visit | None:
        """None: there is no room. Who has entered must leave."""
        if len(self) >= self._total or self._waiting[address] >= self._per_address:
            return None
        self._waiting[address] += 1
        return Visit(address, self._leave)

    def _leave(self, address: str) -> None:
        self._waiting[address] -= 1
        if not self._waiting[address]:
            del self._waiting[address]


class AddressPaces:
    """A token bucket for each address that was seen lately.

    Args:
        qps, burst, max_wait_s, what: of each bucket, as TokenBucket has them
        size: buckets at most; the one that was not used for longest is forgotten
    """

    def __init__(
        self,
        *,
        qps: float,
        burst: int,
        max_wait_s: float,
        what: str,
        size: int = REMEMBERED_ADDRESSES,
    ) -> None:
        self._qps, self._burst, self._max_wait_s, self._what = qps, burst, max_wait_s, what
        self._size = size
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def of(self, address: str) -> TokenBucket:
        network = network_of(address)
        bucket = self._buckets.get(network) or self._new_bucket()
        self._buckets[network] = bucket
        self._buckets.move_to_end(network)
        if len(self._buckets) > self._size:
            self._buckets.popitem(last=False)
        return bucket

    def _new_bucket(self) -> TokenBucket:
        return TokenBucket(
            qps=self._qps, burst=self._burst, max_wait_s=self._max_wait_s, what=self._what
        )


def network_of(address: str) -> str:
    """What one host surely has for itself: an IPv4 address, or a /64 of IPv6."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64))


def retry_after(mean_s: float, uniform: Callable[[float, float], float] = random.uniform) -> str:
    """A Retry-After header, whole seconds around `mean_s`: refused ones do not return together."""
    return str(math.ceil(uniform(0.5 * mean_s, 1.5 * mean_s)))
