"""A token bucket: so many in the long run, so many at once; it can be told to hold still.

The GlobalManager's Kubernetes client and event recorder wait for their turn, its edge server
turns away who would have to. Waits on the running loop's clock; the arithmetic takes the time as
an argument.
"""

import asyncio
import math

from common.errors import Overloaded


class TokenBucket:
    """Lets `qps` requests a second pass, after a burst of `burst`; first come, first served.

    Args:
        max_wait_s: who would have to wait for longer gets Overloaded instead, so that a queue of
            waiters is bounded in time, seconds
        what: that is limited, for Overloaded
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
        self._tokens = float(burst)  # negative: promised to those who wait
        self._filled_at = -math.inf
        self._held_until = -math.inf

    def reserve(self, now: float) -> float:
        """Take one token; the seconds after which it may be used.

        Raises: Overloaded, and takes none, when that is beyond `max_wait_s`.
        """
        if self._tokens < self._burst:
            earned = (now - self._filled_at) * self._qps
            self._tokens = min(float(self._burst), self._tokens + earned)
        self._filled_at = now
        owed_s = max(0.0, (1.0 - self._tokens) / self._qps)
        wait_s = max(owed_s, self._held_until - now)
        if wait_s > self._max_wait_s:
            raise Overloaded(self._what, wait_s)
        self._tokens -= 1.0
        return wait_s

    def hold(self, now: float, seconds: float) -> None:
        """Let nothing pass for so long: the server said Retry-After."""
        self._held_until = max(self._held_until, now + seconds)

    async def acquire(self) -> None:
        """Raises: Overloaded."""
        wait_s = self.reserve(asyncio.get_running_loop().time())
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def hold_for(self, seconds: float) -> None:
        self.hold(asyncio.get_running_loop().time(), seconds)
