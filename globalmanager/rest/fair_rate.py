"""A rate that all callers share, of which nobody gets more than a part."""

from typing import NamedTuple

from common.ratelimit import TokenBucket, TokenBuckets


class Rate(NamedTuple):
    per_s: float
    burst: int
    """What may come at the same moment after a pause."""


class FairRate:
    """Args: of_source, total: of one source, and of all; by: makes the buckets of the sources"""

    def __init__(
        self, *, of_source: Rate, total: Rate, part: str, by: type[TokenBuckets] = TokenBuckets
    ) -> None:
        self._sources = by(qps=of_source.per_s, burst=of_source.burst, max_wait_s=0.0, part=part)
        self._total = TokenBucket(qps=total.per_s, burst=total.burst, max_wait_s=0.0, part=part)

    def take(self, source: str, now: float) -> None:
        """Raises: Overloaded"""
        # First the bucket of the source: whoever has used it up takes nothing from the others.
        self._sources.bucket(source, now).reserve(now)
        self._total.reserve(now)
