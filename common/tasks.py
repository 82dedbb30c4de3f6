"""A wait with an end, and a TaskGroup without a defect that Python has before 3.13.

All modules use this class in place of asyncio's. The defect: if a task of a group fails while the
group waits for its tasks, Python cancels the waiting task and never takes this cancellation back,
so `cancelling()` of the waiting task stays 1. With asyncio.timeout of Python 3.11.0 to 3.11.3
(Debian 12 has 3.11.2) the next timeout of the waiting task then raises CancelledError instead of
TimeoutError, and the task ends as if it had been cancelled. A real cancellation of the waiting task
at the same moment is lost.
"""

import asyncio
import contextlib
import sys
from types import TracebackType
from typing import Final, Self

_TAKES_IT_BACK: Final = sys.version_info >= (3, 13)


async def wait_at_most(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


class TaskGroup(asyncio.TaskGroup):  # noqa: TID251
    """Like asyncio.TaskGroup. It takes back its own cancellation, and loses no other one."""

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None
        self._before = self._task.cancelling()
        return await super().__aenter__()

    async def __aexit__(
        self,
        et: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        # asyncio takes back a cancellation that the group requested before this line.
        in_body: bool = self._parent_cancel_requested  # type: ignore[attr-defined]
        try:
            await super().__aexit__(et, exc, tb)
        except BaseExceptionGroup:
            if not _TAKES_IT_BACK:
                self._take_back(in_body=in_body)
            raise

    def _take_back(self, *, in_body: bool) -> None:
        """Take back the group's own cancellation. Raises: CancelledError if there was another"""
        assert self._task is not None
        if self._parent_cancel_requested and not in_body:  # type: ignore[attr-defined]
            self._task.uncancel()
        if self._task.cancelling() > self._before:
            raise asyncio.CancelledError
