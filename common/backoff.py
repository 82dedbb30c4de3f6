"""How long to wait before trying again: exponential, capped, with full jitter.

Full jitter (a uniform draw up to the cap) spreads a fleet that lost its server at one instant;
jitter around the cap would let it come back in waves.
"""

import random
from collections.abc import Callable


class Backoff:
    """Delays for one thing that fails in a row. Not thread-safe.

    Args:
        base_s: cap of the first delay, seconds
        max_s: cap of every delay, seconds
        floor_s: least delay, seconds, so that a lucky draw is not a hot loop
        uniform: draws a float in [low, high]
    """

    def __init__(
        self,
        *,
        base_s: float,
        max_s: float,
        floor_s: float = 0.0,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        if not 0 <= floor_s <= base_s <= max_s:
            raise ValueError(f"need 0 <= floor {floor_s} <= base {base_s} <= max {max_s}")
        self._base_s, self._max_s, self._floor_s = base_s, max_s, floor_s
        self._uniform = uniform
        self.failures = 0  # in a row

    def next_s(self, *, at_least_s: float = 0.0) -> float:
        """Seconds to wait after one more failure; `at_least_s` honours a Retry-After."""
        # 2**64 s is beyond any cap; unbounded exponents would overflow after days of failing.
        cap = min(self._max_s, self._base_s * 2.0 ** min(self.failures, 64))
        self.failures += 1
        return max(at_least_s, self._uniform(self._floor_s, cap))

    def reset(self) -> None:
        self.failures = 0
