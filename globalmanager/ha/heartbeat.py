"""Finds that the line to the API server died in silence, and has it dialled anew.

Run by roster. A watch has nothing to say while nothing changes, so its silence proves nothing. The
watch of the Leases is the exception: the leader renews its Lease every 1.5 s, and each replica its
own three times in the duration of a Lease. When no Lease changes for longer than that, no other
watch can be trusted, either, nor can any pooled connection: a request that takes a dead one hangs
until its deadline.

A new connection is tried until the API server answers over it. Then it takes the place of all
connections of before, and whoever waits for its next try is told. So what was missed comes within
seconds of the line's return, whatever became of the old connections.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from typing import Final

from common import logs
from common.errors import EdgeAIError

log = logs.get_logger(__name__)

_TRY_EVERY_S: Final = 1.0  # at most
_MAX_PATIENCE_S: Final = 60.0


class Heartbeat:
    """
    Args:
        redial: dials the API server anew; raises EdgeAIError while it does not answer
        silence_s: longer than any pause between two heartbeats of a healthy line
    """

    def __init__(self, redial: Callable[[], Awaitable[None]], *, silence_s: float) -> None:
        self._redial = redial
        self._silence_s = silence_s
        # Doubled by each redialling that brought no heartbeat: where nobody can write a Lease, the
        # silence is not the line's.
        self._patience_s = silence_s
        self._since = -math.inf  # of the silence, or the last redialling

    def heard(self) -> None:
        """A Lease has changed."""
        self._since = _now()
        self._patience_s = self._silence_s

    async def run(self) -> None:
        """Until cancelled."""
        self._since = _now()
        while True:
            left_s = self._since + self._patience_s - _now()
            if left_s > 0:
                await asyncio.sleep(min(left_s, self._silence_s))  # the patience may shrink
            else:
                await self._dial_anew()

    async def _dial_anew(self) -> None:
        """Also when a heartbeat comes meanwhile: the other watches may be on dead connections."""
        began, patience_s = self._since, self._patience_s
        while True:
            try:
                await self._redial()
                break
            except EdgeAIError as error:
                log.debug("the API server does not answer on a new line", problem=str(error))
            # Jitter, because all replicas lose an API server at one instant.
            await asyncio.sleep(random.uniform(1.0, 1.5) * _TRY_EVERY_S)
        self._since = _now()
        self._patience_s = min(2 * patience_s, max(_MAX_PATIENCE_S, self._silence_s))
        log.warning(
            "no Lease changed, the API server was dialled anew", silent_s=round(_now() - began, 1)
        )


def _now() -> float:
    return asyncio.get_running_loop().time()
