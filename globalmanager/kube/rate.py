"""The rate of requests to the API server, and the shares that its users have of it.

Called by `client`. One token bucket; whoever has to wait stands in the queue of its share, and the
tokens go round the queues by weight (start-time fair queueing). So a share that is in use gets at
least its part of the rate, however long the other queues are, and what nobody else wants it gets as
well. The arithmetic takes the time as an argument; only `acquire` and `hold_for` use the loop's.
"""

import asyncio
import enum
import math
from collections import deque
from collections.abc import Iterator
from types import MappingProxyType
from typing import Final

from common.errors import Overloaded


class Share(enum.Enum):
    """Who asks."""

    PLANS = "plans"
    """What the leader writes to bring a job into the wanted state."""
    REPORTS = "reports"
    """Status that edges report."""
    OTHER = "other"
    """Lists, watches, and whether a node's credential is good."""


PARTS: Final = MappingProxyType({Share.PLANS: 0.4, Share.REPORTS: 0.4, Share.OTHER: 0.2})
"""Of the rate; together 1."""
_ALMOST_ONE: Final = 1 - 1e-6  # a token, after rounding

Ticket = asyncio.Future[None]


class SharedRate:
    """Lets `qps` requests a second pass, after a burst of `burst`; first come, first served in each
    share.

    Args:
        max_wait_s: who might have to wait for longer gets Overloaded instead, so that the queues
            are bounded
    """

    def __init__(self, *, qps: float, burst: int, max_wait_s: float = 30.0) -> None:
        if not (0 < qps < math.inf and burst >= 1):
            raise ValueError(f"need qps > 0 and burst >= 1, got {qps} and {burst}")
        self._qps, self._burst, self._max_wait_s = qps, burst, max_wait_s
        self._tokens = float(burst)
        self._filled_at = -math.inf
        self._held_until = -math.inf
        self._queues: dict[Share, deque[Ticket]] = {share: deque() for share in Share}
        # Virtual time: one request of a share takes 1/part of it. It is the start of the request
        # that passed last; a share's next request starts no earlier than its last one ended.
        self._virtual = 0.0
        self._ended = dict.fromkeys(Share, 0.0)
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

    def hold_for(self, seconds: float) -> None:
        """Let nothing pass for so long: the server said Retry-After."""
        self.hold(asyncio.get_running_loop().time(), seconds)

    def _let_pass(self) -> None:
        loop = asyncio.get_running_loop()
        for ticket in self.passing(loop.time()):
            ticket.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if any(self._queues.values()):
            self._timer = loop.call_at(self._next_at(loop.time()), self._let_pass)

    # ---- arithmetic; `now` in seconds, of any clock ---------------------------------------------

    def enter(self, share: Share, ticket: Ticket, now: float) -> None:
        """Raises: Overloaded, and the ticket is not in the queue"""
        wait_s = max(
            len(self._queues[share]) / (self._qps * PARTS[share]),
            self._held_until - now,
        )
        if wait_s > self._max_wait_s:
            raise Overloaded("client of the Kubernetes API", wait_s)
        self._queues[share].append(ticket)

    def passing(self, now: float) -> Iterator[Ticket]:
        """Those for whom there are tokens, in their order; each is taken from its queue."""
        self._fill(now)
        if now < self._held_until:
            return
        while self._tokens >= _ALMOST_ONE and (waiting := [s for s in Share if self._queues[s]]):
            share = min(waiting, key=self._start)
            self._virtual = self._start(share)
            self._ended[share] = self._virtual + 1 / PARTS[share]
            self._tokens -= 1
            yield self._queues[share].popleft()

    def hold(self, now: float, seconds: float) -> None:
        self._held_until = max(self._held_until, now + seconds)

    def _start(self, share: Share) -> float:
        """Virtual time at which the next request of the share starts."""
        return max(self._virtual, self._ended[share])

    def _fill(self, now: float) -> None:
        if self._tokens < self._burst:
            earned = (now - self._filled_at) * self._qps
            self._tokens = min(float(self._burst), self._tokens + earned)
        self._filled_at = now

    def _next_at(self, now: float) -> float:
        """When the next one may pass, the bucket having been filled now."""
        return max(self._held_until, now + max(0.0, 1 - self._tokens) / self._qps)
