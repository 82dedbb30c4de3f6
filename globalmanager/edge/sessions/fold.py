"""Writes a worker's report into the .status of the worker's job.

Called by the inbox for each report. `fold` of the job's kind computes the patch of .status. This
module decides what each failure of the write means for the sender of the report. The engine's
functions are arguments, because the edge side imports neither the engine nor the Kubernetes client.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from common.errors import EdgeAIError
from common.ids import TaskKey, Uid
from globalmanager.contract import ObjectRef, Served, WorkerReport
from globalmanager.edge.sessions.inbox import GONE, Done, Outcome, Refused, Retry

Find = Callable[[TaskKey], Served | None]
PatchOf = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Function from the present .status to a merge patch of it; None when nothing changes."""

UpdateStatus = Callable[[ObjectRef, Uid, PatchOf], Awaitable[None]]
"""Patches .status of the object with this uid. Returns when the Kubernetes API has the patch."""


class StatusFold:
    """Writes reports; implements FoldAndWrite of the inbox.

    Args:
        find: task key -> its job resource in the cache
        update: writes the .status of the job resource
        is_gone: whether an error of `update` says that no object with the uid exists
    """

    def __init__(
        self, *, find: Find, update: UpdateStatus, is_gone: Callable[[EdgeAIError], bool]
    ) -> None:
        self._find = find
        self._update = update
        self._is_gone = is_gone

    async def __call__(self, key: TaskKey, uid: Uid, report: WorkerReport) -> Outcome:
        served = self._find(key)
        if served is None or served.object["metadata"]["uid"] != uid:
            return Refused(GONE)
        kind = served.kind
        try:
            # `update` calls `fold` with the .status to which it writes. This .status may be newer
            # than the .status in the cache.
            await self._update(served.ref, uid, lambda status: kind.fold(status, report))
        except EdgeAIError as error:
            if self._is_gone(error):
                return Refused(GONE)
            return Retry(str(error), getattr(error, "retry_after_s", 0.0))
        return Done()
