"""Back-off and policy of container restarts. Pure; used by container."""

import msgspec


class RestartDelays(msgspec.Struct, frozen=True):
    """Waits between the restarts of a container that keeps ending."""

    first_s: float = 1.0
    """Wait before the second restart in a row; the first restart is immediate."""
    max_s: float = 60.0
    """Each further wait is twice the previous one, up to this."""
    reset_after_s: float = 600.0
    """After a run of this length the next restart counts as the first one again."""


class RestartBackoff:
    """Computes the waits of one container."""

    def __init__(self, delays: RestartDelays) -> None:
        self._delays = delays
        self._restarts = 0  # in a row

    def next_s(self, ran_s: float) -> float:
        """Seconds to wait, after a run of `ran_s` seconds, before the next start."""
        if ran_s >= self._delays.reset_after_s:
            self._restarts = 0
        self._restarts += 1
        if self._restarts == 1:
            return 0.0
        # The exponent is capped, since 2.0 ** 1024 overflows.
        return min(self._delays.max_s, self._delays.first_s * 2.0 ** min(self._restarts - 2, 64))


def should_restart(policy: str, exit_code: int) -> bool:
    """Args: policy: Always, OnFailure or Never."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
