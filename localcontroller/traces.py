"""The LocalController's steps of the way of a task, as spans; used where traces_endpoint is set.

The conversation with the GlobalManager tells when a task arrived and is durable, and the link when
the GlobalManager has taken a report.
"""

from collections import OrderedDict
from typing import Final

from common.traces import Traces, Version, now
from edgeai.ids import NodeName, Uid, WorkerName

MAX_WAYS: Final = 1024


class TaskTraces:
    """All calls come from the event loop's thread.

    Args: node: the name of this node
    """

    def __init__(self, traces: Traces, node: NodeName) -> None:
        self._traces = traces
        self._node = node
        # Task whose first report is awaited -> its version, and when it was stored.
        self._ways: OrderedDict[Uid, tuple[Version, float]] = OrderedDict()

    def stored(self, way: Version, *, since: float) -> None:
        """The ledger has the task. Args: since: when the task arrived, as of `now`"""
        self._traces.step("store", way, since=since, node=self._node)
        self._ways[way.uid] = (way, now())
        if len(self._ways) > MAX_WAYS:
            self._ways.popitem(last=False)

    def reported(self, uid: Uid, worker: WorkerName) -> None:
        """The GlobalManager has taken a report; of a task, the first one counts."""
        way, since = self._ways.pop(uid, (None, 0.0))
        if way is not None:
            self._traces.step(
                "run until the first report", way, since=since, node=self._node, worker=worker
            )
