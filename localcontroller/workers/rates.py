"""Lets requests to the worker API wait that come too fast, and bounds how many are under way.

A request costs about 0.3 ms, and the session with the cloud shares the process. So neither a worker
that sends without pause nor a stranger may take the event loop from the other workers of the node.
"""

from collections import Counter as Numbers
from typing import Final

import msgspec
from prometheus_client import Counter

from common.ratelimit import TokenBuckets, WaitingRoom
from edgeai.addresses import network_of
from edgeai.errors import Overloaded
from edgeai.ids import parse_task_key
from localcontroller.ledger.tables import Grant

MAX_WAIT_S: Final = 10.0  # longest wait of a request
BUSY_RETRY_S: Final = 1.0
GRANT_SHARE: Final = 4  # what has one secret gets this part of all, a quarter
NAMESPACE_SHARE: Final = 2  # and all tasks of one namespace get a half
_SERVER: Final = "the worker API"


class RequestRates(msgspec.Struct, frozen=True, kw_only=True):
    """Requests per second, and requests at once after a pause (`burst`)."""

    of_task_per_s: float = 100.0
    """Of the workers of one task, which share a secret. A worker needs about one a second."""
    of_task_burst: int = 200
    of_namespace_per_s: float = 200.0
    of_namespace_burst: int = 400
    of_stranger_per_s: float = 20.0
    """Of one IP address (IPv6: one /64), without the right to report."""
    of_stranger_burst: int = 50


class WorkerApiRates:
    """Args: limit, delays: the most, and the number, of requests that wait"""

    def __init__(self, rates: RequestRates, *, limit: int, delays: Counter) -> None:
        def room(per_s: float, burst: int) -> WaitingRoom:
            buckets = TokenBuckets(qps=per_s, burst=burst, max_wait_s=MAX_WAIT_S, part=_SERVER)
            return WaitingRoom(buckets, limit=limit, server=_SERVER, delays=delays)

        self._tasks = room(rates.of_task_per_s, rates.of_task_burst)
        self._namespaces = room(rates.of_namespace_per_s, rates.of_namespace_burst)
        self._strangers = room(rates.of_stranger_per_s, rates.of_stranger_burst)

    async def wait(self, grant: Grant) -> None:
        """Wait until the next request with this grant may pass. Raises: Overloaded"""
        await self._tasks.wait(grant.uid)
        await self._namespaces.wait(parse_task_key(grant.key).namespace)

    async def wait_as_stranger(self, address: str) -> None:
        """Wait until the next request without a right may be refused. Raises: Overloaded"""
        await self._strangers.wait(network_of(address))


class Shares:
    """How many requests, or streams, are under way. Slow ones of one worker must leave room for the
    other workers of the node, and those of one tenant for the other tenants.

    Args: limit: of all together
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used: Numbers[Grant | str] = Numbers()  # by grant, by namespace, and by "": of all

    @property
    def used(self) -> int:
        return self._used[""]

    def take(self, grant: Grant) -> None:
        """Raises: Overloaded"""
        namespace = parse_task_key(grant.key).namespace
        shares: dict[Grant | str, tuple[int, str]] = {
            "": (1, _SERVER),
            grant: (GRANT_SHARE, "the share of this worker"),
            namespace: (NAMESPACE_SHARE, "the share of this namespace"),
        }
        for holder, (share, name) in shares.items():
            if self._used[holder] >= max(1, self._limit // share):
                raise Overloaded(name, BUSY_RETRY_S)
        self._used.update(list(shares))

    def give_back(self, grant: Grant) -> None:
        for holder in ("", grant, parse_task_key(grant.key).namespace):
            self._used[holder] -= 1
            if not self._used[holder]:
                del self._used[holder]
