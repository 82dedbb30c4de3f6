"""The LocalController's steps of the way of a task, as spans where traces_endpoint is set.

The conversation with the GlobalManager tells when a task arrived and is durable, and the link when
the GlobalManager has taken a report.
"""

from typing import Final

from common.traces import Traces, Version, now
from common.wire import Assign
from edgeai.ids import Uid, WorkerName
from edgeai.newest import NewestKeys

MAX_WAYS: Final = 1024


class TaskTraces:
    """Hears of the steps, and does nothing. All calls come from the event loop's thread."""

    def arrived(self, frame: Assign) -> None:
        """The task waits to be stored."""

    def settled(self, frame: Assign, refusal: str) -> None:
        """The ledger has the task, or has refused it."""

    def reported(self, uid: Uid, worker: WorkerName) -> None:
        """The GlobalManager has taken a report; of a task, the first one counts."""

    async def close(self) -> None:
        """Send what waits, for at most CLOSE_S."""


NO_TRACES: Final = TaskTraces()


class TaskSpans(Traces, TaskTraces):
    """Sends the steps as spans. Args and raises: as Traces; node: the instance"""

    def __init__(self, endpoint: str, node: str) -> None:
        super().__init__(endpoint, service="localcontroller", instance=node)
        self._node = node
        self._arrived = NewestKeys[Version, float](MAX_WAYS)  # not stored yet
        # Task whose first report is awaited -> its version, and when it was stored.
        self._ways = NewestKeys[Uid, tuple[Version, float]](MAX_WAYS)

    def arrived(self, frame: Assign) -> None:
        self._arrived[Version(frame.key, frame.uid, frame.version)] = now()

    def settled(self, frame: Assign, refusal: str) -> None:
        way = Version(frame.key, frame.uid, frame.version)
        since = self._arrived.pop(way, None)
        if since is not None and not refusal:
            self.step("store", way, since=since, node=self._node)
            self._ways[way.uid] = (way, now())

    def reported(self, uid: Uid, worker: WorkerName) -> None:
        way, since = self._ways.pop(uid, (None, 0.0))
        if way is not None:
            self.step(
                "run until the first report", way, since=since, node=self._node, worker=worker
            )
