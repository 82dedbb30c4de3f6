"""The way of a report into .status: find the object, and fold into what it says when written.

The engine comes in as callables, so nothing here knows the Kubernetes client. `fold` is the
kind's pure rule; this module only decides what each way to fail means for the sender.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from common.errors import EdgeAIError
from common.ids import TaskKey, Uid
from globalmanager.contract import Kind, Object, ObjectRef, WorkerReport
from globalmanager.edge.sessions.inbox import GONE, Done, Outcome, Refused, Retry


class Found(Protocol):
    """A job resource as the cache holds it, and the kind that knows what to do with it."""

    @property
    def kind(self) -> Kind: ...
    @property
    def ref(self) -> ObjectRef: ...
    @property
    def object(self) -> Object: ...


Find = Callable[[TaskKey], Found | None]
PatchOf = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
""".status as it is -> what to merge into it; None: nothing."""

UpdateStatus = Callable[[ObjectRef, Uid, PatchOf], Awaitable[None]]
"""Merge-patch .status of exactly the object with this uid; returns once the API has it."""


class StatusFold:
    """An upstream.FoldAndWrite.

    Args:
        is_gone: whether an error of `update` says that no object of that uid exists
    """

    def __init__(
        self, *, find: Find, update: UpdateStatus, is_gone: Callable[[EdgeAIError], bool]
    ) -> None:
        self._find = find
        self._update = update
        self._is_gone = is_gone

    async def __call__(self, key: TaskKey, uid: Uid, report: WorkerReport) -> Outcome:
        found = self._find(key)
        if found is None or found.object["metadata"]["uid"] != uid:
            return Refused(GONE)
        kind = found.kind
        try:
            await self._update(found.ref, uid, lambda status: kind.fold(status, report))
        except EdgeAIError as error:
            if self._is_gone(error):
                return Refused(GONE)
            return Retry(str(error), getattr(error, "retry_after_s", 0.0))
        return Done()
