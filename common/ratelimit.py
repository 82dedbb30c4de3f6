"""A token bucket: limits the rate of requests in the long run, and the size of a burst.

In the GlobalManager, the Kubernetes client and the event recorder wait until a request may pass.
The edge server refuses a request that would have to wait. `acquire` and `hold_for` use the clock of
the running event loop; `reserve` and `hold` take the time as an argument.
"""

import asyncio
import math

from common.errors import Overloaded


class TokenBucket:
    """A rate limit: `burst` requests pass at once, then `qps` requests a second, first come, first
    served.

    Args:
        max_wait_s: longest wait of a request, seconds; a request that would wait longer raises
            Overloaded
        what: name of the limited part, for the text of Overloaded
    """

    def __init__(
        self,
        *,
        qps: float,
        burst: int,
        max_wait_s: float = 30.0,
        what: str = "client of the Kubernetes API",
    ) -> None:
        if not (0 < qps < math.inf and burst >= 1):
            raise ValueError(f"need qps > 0 and burst >= 1, got {qps} and {burst}")
        self._qps, self._burst, self._max_wait_s = qps, burst, max_wait_s
        self._what = what
        self._tokens = float(burst)  # below 0 when requests wait: each of them has a token already
        self._filled_at = -math.inf
        self._held_until = -math.inf

    def reserve(self, now: float, tokens: float = 1.0) -> float:
        """Take one token, or as many as the request costs. Returns: seconds to wait before the
        request may pass.

        Raises: Overloaded if the wait exceeds `max_wait_s`; then no token is taken
        """
        if self._tokens < self._burst:
            earned = (now - self._filled_at) * self._qps
            self._tokens = min(float(self._burst), self._tokens + earned)
        self._filled_at = now
        owed_s = max(0.0, (tokens - self._tokens) / self._qps)
        wait_s = max(owed_s, self._held_until - now)
        if wait_s > self._max_wait_s:
            raise Overloaded(self._what, wait_s)
        self._tokens -= tokens
        return wait_s

    def hold(self, now: float, seconds: float) -> None:
        """Let no request pass for `seconds`, because the server answered with Retry-After."""
        self._held_until = max(self._held_until, now + seconds)

    async def acquire(self) -> None:
        """Wait until one request may pass. Raises: Overloaded"""
        wait_s = self.reserve(asyncio.get_running_loop().time())
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def hold_for(self, seconds: float) -> None:
        self.hold(asyncio.get_running_loop().time(), seconds)
