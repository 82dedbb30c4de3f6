"""Computes the delay before the next try: exponential, capped, with full jitter.

Full jitter draws each delay uniformly between the floor and the cap. So nodes that lost their
server at the same instant come back at different times; jitter around the cap would make waves.
"""

import random
from collections.abc import Callable


class Backoff:
    """The delays after failures in a row of one operation. Not thread-safe.

    Args:
        base_s: cap of the first delay, seconds
        max_s: cap of every delay, seconds
        floor_s: least delay, seconds; without a floor small draws would make a hot loop
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
        self.failures = 0  # failures in a row, since the last reset()

    def next_s(self, *, at_least_s: float = 0.0) -> float:
        """Count one more failure. Returns: seconds to wait, `at_least_s` (Retry-After) or more."""
        # 2**64 s is beyond any cap. A larger exponent would overflow after days of failures.
        cap = min(self._max_s, self._base_s * 2.0 ** min(self.failures, 64))
        self.failures += 1
        return max(at_least_s, self._uniform(self._floor_s, cap))

    def reset(self) -> None:
        self.failures = 0
