"""Brings a report into the .status of its object, by the rule of the object's kind.

Called by the inbox for each report. The engine's part comes in as functions, since this room knows
neither the engine nor the Kubernetes client. `fold` of the kind is the rule; this module decides
what each failure means for the sender of the report.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from common.errors import EdgeAIError
from common.ids import TaskKey, Uid
from globalmanager.contract import ObjectRef, Served, WorkerReport
from globalmanager.edge.sessions.inbox import GONE, Done, Outcome, Refused, Retry

Find = Callable[[TaskKey], Served | None]
PatchOf = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
""".status as it is -> what to merge into it; None: nothing."""

UpdateStatus = Callable[[ObjectRef, Uid, PatchOf], Awaitable[None]]
"""Merge-patch .status of exactly the object with this uid; returns once the API has it."""


class StatusFold:
    """An inbox.FoldAndWrite.

    Args:
        find: the job resource of a task key, as the cache has it
        update: writes its .status
        is_gone: whether an error of `update` says that no object of that uid exists
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
            # The kind folds into .status as it is when written, which may be newer than the cache.
            await self._update(served.ref, uid, lambda status: kind.fold(status, report))
        except EdgeAIError as error:
            if self._is_gone(error):
                return Refused(GONE)
            return Retry(str(error), getattr(error, "retry_after_s", 0.0))
        return Done()
