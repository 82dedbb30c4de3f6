"""Token buckets limit the rate of requests in the long run, and the size of a burst.

`acquire` waits until a request may pass, by the running event loop's clock. `reserve` takes a time.
"""

import asyncio
import math
from collections import OrderedDict
from typing import Final

from prometheus_client import Counter

from common.rate_limited_warning import RateLimitedWarning
from common.tasks import wait_at_most
from edgeai.errors import Overloaded

REMEMBERED_BUCKETS: Final = 4096


class TokenBucket:
    """A rate limit: `burst` requests pass at once, then `qps` a second, first come, first served.

    Args:
        max_wait_s: longest wait of a request, seconds; a request that would wait longer raises
            Overloaded
        part: name of the limited part, for the text of Overloaded
    """

    def __init__(
        self,
        *,
        qps: float,
        burst: int,
        max_wait_s: float = 30.0,
        part: str = "client of the Kubernetes API",
    ) -> None:
        if not (0 < qps < math.inf and burst >= 1):
            raise ValueError(f"need qps > 0 and burst >= 1, got {qps} and {burst}")
        self._qps, self._burst, self._max_wait_s = qps, burst, max_wait_s
        self._part = part
        self._tokens = float(burst)  # below 0 when requests wait: each of them has a token already
        self._filled_at = -math.inf

    def reserve(self, now: float, tokens: float = 1.0) -> float:
        """Take a token, or as many as it costs. Returns: seconds until the request may pass

        Raises: Overloaded if the wait exceeds `max_wait_s`; then no token is taken
        """
        if self._tokens < self._burst:
            growth = (now - self._filled_at) * self._qps
            self._tokens = min(float(self._burst), self._tokens + growth)
        self._filled_at = now
        wait_s = max(0.0, (tokens - self._tokens) / self._qps)
        if wait_s > self._max_wait_s:
            raise Overloaded(self._part, wait_s)
        self._tokens -= tokens
        return wait_s

    def admits(self, now: float) -> bool:
        """Take a token. Returns: False: the wait would exceed `max_wait_s`, and none is taken"""
        try:
            self.reserve(now)
        except Overloaded:
            return False
        return True

    def is_full(self, now: float) -> bool:
        """Whether the bucket lets a whole burst pass at `now`, as a new bucket does."""
        tokens = (now - self._filled_at) * self._qps
        return self._tokens + tokens >= self._burst

    def give_back(self) -> None:
        """Return one token, because its request turned out to cost nothing."""
        self._tokens = min(float(self._burst), self._tokens + 1.0)

    async def acquire(self, tokens: float = 1.0) -> None:
        """Wait until one request may pass, which costs so many tokens. Raises: Overloaded"""
        wait_s = self.reserve(asyncio.get_running_loop().time(), tokens)
        if wait_s > 0:
            await asyncio.sleep(wait_s)


class TokenBuckets:
    """One token bucket for each source of requests.

    A bucket that has filled up again is as good as a new one, so it is forgotten. Sources that come
    once and never again, such as the tasks of past jobs, take no memory.

    Args:
        qps, burst, max_wait_s, part: arguments of each TokenBucket
        size: largest number of buckets; the least recently used bucket is removed first
    """

    def __init__(
        self,
        *,
        qps: float,
        burst: int,
        max_wait_s: float,
        part: str,
        size: int = REMEMBERED_BUCKETS,
    ) -> None:
        self._qps, self._burst, self._max_wait_s, self._part = qps, burst, max_wait_s, part
        self._size = size
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def bucket(self, source: str, now: float) -> TokenBucket:
        """The bucket of the source. The caller takes its token at once. Args: now: as `reserve`"""
        bucket = self._buckets.get(source) or self._new_bucket()
        self._buckets[source] = bucket
        self._buckets.move_to_end(source)
        while len(self._buckets) > self._size or self._has_full_one(now, but=bucket):
            self._buckets.popitem(last=False)
        return bucket

    def _has_full_one(self, now: float, *, but: TokenBucket) -> bool:
        """Whether the least recently used bucket is full, and is not this one."""
        oldest = next(iter(self._buckets.values()))
        return oldest is not but and oldest.is_full(now)

    def _new_bucket(self) -> TokenBucket:
        return TokenBucket(
            qps=self._qps, burst=self._burst, max_wait_s=self._max_wait_s, part=self._part
        )


class WaitingRoom:
    """Lets the requests of a source wait, so that they come at the rate of the source.

    A client can leave while its request waits, and come again. So the number of them is bounded.

    Args:
        limit: most requests that wait, of all sources together
        delays: counts the requests that wait
    """

    def __init__(self, buckets: TokenBuckets, *, limit: int, server: str, delays: Counter) -> None:
        self._buckets = buckets
        self._limit = limit
        self._server = server
        self._delays = delays
        self._requests = 0
        self._closed = asyncio.Event()
        self._warning = RateLimitedWarning("too many requests from one source, delaying them")

    def __len__(self) -> int:
        """Number of requests that wait."""
        return self._requests

    async def wait(self, source: str) -> None:
        """Wait until the next request of `source` may pass.

        Raises: Overloaded when the request would wait too long, or too many requests wait
        """
        now = asyncio.get_running_loop().time()
        wait_s = self._buckets.bucket(source, now).reserve(now)
        if wait_s <= 0:
            return
        self._warning.log(server=self._server, source=source)
        if self._requests >= self._limit:
            raise Overloaded(self._server, wait_s)
        self._delays.inc()
        self._requests += 1
        try:
            await wait_at_most(wait_s, self._closed)
        finally:
            self._requests -= 1

    def close(self) -> None:
        """End all waits, because the server stops."""
        self._closed.set()
