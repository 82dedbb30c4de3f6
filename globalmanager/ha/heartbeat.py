"""Detects dead connections to the API server, and makes the client dial again.

Run by roster. Most watches are silent while no object changes, so their silence proves nothing. The
watch of the replicas' Leases is the exception. The leader renews its Lease every 1.5 s, and every
replica renews its own Lease three times in the duration of a Lease. When no Lease changes for a
longer time, all watches and pooled connections may be dead, and requests hang on them.

The client then tries a new connection until the API server answers. The new connection replaces all
earlier connections, and informers try again at once: they catch up within seconds.
"""

import asyncio
import math
import random
from typing import Final, Protocol

from common import logs
from common.clock import loop_time
from edgeai.errors import EdgeAIError

log = logs.get_logger(__name__)

_REDIAL_DEADLINE_S: Final = 2.0
_TRY_EVERY_S: Final = 1.0  # shortest pause in seconds between two attempts to dial
_MAX_PATIENCE_S: Final = 60.0  # longest silence in seconds before the client opens new connections


class Client(Protocol):
    async def redial(self, *, deadline_s: float) -> None:
        """Open new connections. Raises: EdgeAIError while the server does not answer"""


class Heartbeat:
    """Watches the changes of the replicas' Leases.

    Args: silence_s: longer than any pause between two changes of Leases on a healthy connection
    """

    def __init__(self, client: Client, *, silence_s: float) -> None:
        self._client = client
        self._silence_s = silence_s
        # The silence after which the client dials again. The time doubles after each new connection
        # without a change of a Lease: then no replica can write its Lease over a good connection.
        self._patience_s = silence_s
        self._since = -math.inf  # time of the last change of a Lease, or of the last new connection

    def heard(self) -> None:
        self._since = loop_time()
        self._patience_s = self._silence_s

    async def run(self) -> None:
        """Dial again after each long silence, until this task is cancelled."""
        self._since = loop_time()
        while True:
            left_s = self._since + self._patience_s - loop_time()
            if left_s > 0:
                await asyncio.sleep(min(left_s, self._silence_s))  # `heard` may shorten the silence
            else:
                await self._dial_anew()

    async def _dial_anew(self) -> None:
        """Dial until the API server answers."""
        # Also when a Lease changes meanwhile: other watches may still use dead connections.
        silent_since, patience_s = self._since, self._patience_s
        while True:
            try:
                await self._client.redial(deadline_s=_REDIAL_DEADLINE_S)
                break
            except EdgeAIError as error:
                log.debug("the API server does not answer on a new line", problem=str(error))
            # The pause is random, because all replicas lose an API server at the same moment.
            await asyncio.sleep(random.uniform(1.0, 1.5) * _TRY_EVERY_S)
        self._since = loop_time()
        self._patience_s = min(2 * patience_s, max(_MAX_PATIENCE_S, self._silence_s))
        log.warning(
            "no Lease changed, the API server was dialled anew",
            silent_s=round(loop_time() - silent_since, 1),
        )
