"""Back-off and policy of container restarts. Pure; `container` calls this module."""

import msgspec


class RestartDelays(msgspec.Struct, frozen=True):
    """Waits before the restarts of a container that ends again and again."""

    first_s: float = 1.0
    """Wait before the second restart in a row. The first restart is immediate."""
    max_s: float = 60.0
    """Longest wait. Each further wait is twice the previous wait, up to this limit."""
    reset_after_s: float = 600.0
    """Length of a run after which the next restart counts as the first restart again."""


class RestartBackoff:
    """Computes the waits before the restarts of one container."""

    def __init__(self, delays: RestartDelays) -> None:
        self._delays = delays
        self._restarts = 0  # restarts in a row

    def next_s(self, ran_s: float) -> float:
        """Seconds to wait before the next start, after a run that took `ran_s` seconds."""
        if ran_s >= self._delays.reset_after_s:
            self._restarts = 0
        self._restarts += 1
        if self._restarts == 1:
            return 0.0
        # The exponent has a limit, because 2.0 ** 1024 overflows.
        return min(self._delays.max_s, self._delays.first_s * 2.0 ** min(self._restarts - 2, 64))


def should_restart(policy: str, exit_code: int) -> bool:
    """Whether a container that ended with `exit_code` should run again.

    Args:
        policy: Always, OnFailure or Never
    """
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
