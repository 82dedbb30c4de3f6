"""The fence lets writes to the Kubernetes API pass only while this replica surely leads.

The elector opens and closes the fence. A guarded client (kube.guard) sends every write through the
fence. A frozen process that wakes up after its time as leader finds the fence closed.
"""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from common.clock import SYSTEM_CLOCK, Clock, loop_time
from edgeai.kube.sender import Shut


class Fence:
    """A Guard, closed when it is new. Args: clock: seconds, monotonic"""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._until = -math.inf  # time of the clock when the fence closes
        self._passing: dict[asyncio.Timeout, None] = {}  # deadlines of the writes under way

    @property
    def is_open(self) -> bool:
        """Whether this replica leads."""
        return self.left_s() > 0

    def left_s(self) -> float:
        """Seconds until the fence closes; 0 when the fence is closed."""
        return max(0.0, self._until - self._clock.elapsed())

    def open_until(self, until: float) -> None:
        """Let writes pass until this time of the fence's clock, those under way, too.

        A time in the past closes the fence.
        """
        self._until = until
        for deadline in self._passing:
            if not deadline.expired():
                deadline.reschedule(self._loop_time())

    def close(self) -> None:
        """Let no write pass, and cancel the writes under way."""
        self.open_until(-math.inf)

    @asynccontextmanager
    async def passage(self) -> AsyncIterator[None]:
        """The context of one write, which ends when the fence closes. Raises: Shut"""
        if not self.is_open:
            raise Shut
        deadline = asyncio.timeout_at(self._loop_time())
        try:
            async with deadline:
                self._passing[deadline] = None
                try:
                    yield
                finally:
                    self._passing.pop(deadline, None)
        except TimeoutError as error:
            if deadline.expired():
                raise Shut from error
            raise  # the deadline of the write itself has passed

    def _loop_time(self) -> float:
        """The time when the fence closes, on the clock of the event loop."""
        return loop_time() + self.left_s()
