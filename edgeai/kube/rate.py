"""The rate of requests to the API server. Plans, reports and other requests have a share of the
rate.

There is one token bucket. A request that must wait stands in the queue of its share. The queues get
the tokens by weight (start-time fair queueing). So a share with waiting requests gets at least its
part of the rate, however long the other queues are. The share also gets the parts that no other
share uses. The arithmetic takes the time as an argument. Only `acquire` uses the clock
of the event loop.
"""

import asyncio
import enum
import math
from collections import deque
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from edgeai.errors import Overloaded


class Share(enum.Enum):
    """The purpose of a request."""

    PLANS = "plans"
    """Writes of the leader that bring a job into the wanted state, but for the job's status."""
    STATUSES = "statuses"
    """Status writes of plans."""
    REPORTS = "reports"
    """Status writes for reports of edges."""
    OTHER = "other"
    """Lists, watches, and checks of nodes' credentials."""


PARTS: Final = MappingProxyType(
    {Share.PLANS: 0.3, Share.STATUSES: 0.2, Share.REPORTS: 0.3, Share.OTHER: 0.2}
)
"""Share -> its part of the rate. The sum of the parts is 1."""
_ALMOST_ONE: Final = 1 - 1e-6  # one token, less the error of rounding

Ticket = asyncio.Future[None]


class SharedRate:
    """Lets `qps` requests a second pass, after a burst of `burst`. Within a share, the first
    request in the queue passes first.

    Args:
        max_wait_s: a request that would wait longer gets Overloaded instead. So the queues stay
            bounded
    """

    def __init__(self, *, qps: float, burst: int, max_wait_s: float = 30.0) -> None:
        if not (0 < qps < math.inf and burst >= 1):
            raise ValueError(f"need qps > 0 and burst >= 1, got {qps} and {burst}")
        self._qps, self._burst, self._max_wait_s = qps, burst, max_wait_s
        self._tokens = float(burst)
        self._filled_at = -math.inf
        self._held_until = -math.inf
        self._queues: dict[Share, deque[Ticket]] = {share: deque() for share in Share}
        # Virtual time. One request of a share takes 1/part of virtual time. The value is the start
        # of the request that passed last. The next request of a share starts no earlier than the
        # end of the share's last request.
        self._virtual = 0.0
        self._ends = dict.fromkeys(Share, 0.0)
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self, share: Share) -> None:
        """Wait for a token. Raises: Overloaded"""
        loop = asyncio.get_running_loop()
        ticket = loop.create_future()
        self.enter(share, ticket, loop.time())
        self._let_pass()
        try:
            await ticket
        finally:
            if ticket.cancelled():
                self._queues[share].remove(ticket)

    def _let_pass(self) -> None:
        loop = asyncio.get_running_loop()
        for ticket in self.passing(loop.time()):
            ticket.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if any(self._queues.values()):
            self._timer = loop.call_at(self._next_at(loop.time()), self._let_pass)

    # ---- arithmetic; `now` has the seconds of any clock -----------------------------------------

    def enter(self, share: Share, ticket: Ticket, now: float) -> None:
        """Put the ticket into the queue of its share.

        Raises: Overloaded; then the ticket is not in the queue
        """
        wait_s = max(
            len(self._queues[share]) / (self._qps * PARTS[share]),
            self._held_until - now,
        )
        if wait_s > self._max_wait_s:
            raise Overloaded("client of the Kubernetes API", wait_s)
        self._queues[share].append(ticket)

    def passing(self, now: float) -> Iterator[Ticket]:
        """Takes the tickets that get a token now out of their queues, in their order."""
        self._fill(now)
        if now < self._held_until:
            return
        while self._tokens >= _ALMOST_ONE and (shares := [s for s in Share if self._queues[s]]):
            share = min(shares, key=self._start)
            self._virtual = self._start(share)
            self._ends[share] = self._virtual + 1 / PARTS[share]
            self._tokens -= 1
            yield self._queues[share].popleft()

    def hold(self, now: float, seconds: float) -> None:
        """Let no request pass for `seconds`, because the server sent Retry-After."""
        self._held_until = max(self._held_until, now + seconds)

    def _start(self, share: Share) -> float:
        """The virtual time at which the next request of the share starts."""
        return max(self._virtual, self._ends[share])

    def _fill(self, now: float) -> None:
        if self._tokens < self._burst:
            growth = (now - self._filled_at) * self._qps
            self._tokens = min(float(self._burst), self._tokens + growth)
        self._filled_at = now

    def _next_at(self, now: float) -> float:
        """When the next request may pass. The bucket must have been filled at `now`."""
        return max(self._held_until, now + max(0.0, 1 - self._tokens) / self._qps)
