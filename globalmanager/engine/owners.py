"""Knows the jobs for which children may be created: the jobs that the Kubernetes API confirmed.

When a job is deleted, the garbage collector of Kubernetes deletes the children of the job. The
watch of the jobs may be late, so the engine may see that a child is missing before it sees that the
job is gone. The engine must not create the child again. The collector deletes a child only after
its job is gone, and a GET shows the job as it is at that moment. So there is one rule: after a job
has lost a child, a GET must confirm the job before the engine creates anything for the job.

apply asks before it creates a child; loop passes on the changes of the stores. One uid is kept for
each confirmed job.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from common import times
from globalmanager.cache.store import uid_of
from globalmanager.contract import Object, Observed
from globalmanager.engine.live import Live
from globalmanager.kube.errors import Conflict

# A new job needs no GET: a healthy watch delivers a new job within milliseconds. When the clocks of
# manager and API server differ by more than this, each new job costs one GET.
_NEW: Final = timedelta(seconds=5)


class Owners:
    """The confirmed owners of children.

    Args:
        live: sends the GET requests for job resources
        now: UTC
    """

    def __init__(self, live: Live, now: Callable[[], datetime]) -> None:
        self._live = live
        self._now = now
        self._confirmed: set[str] = set()  # uids of jobs

    def changed(self, old: Object | None, new: Object | None) -> None:
        """A job resource changed in its store. `old` is None for a new job, `new` for a deleted
        job.
        """
        before, after = (uid_of(each) if each is not None else "" for each in (old, new))
        if before == after:
            return
        self._confirmed.discard(before)
        if new is not None and self._is_new(new):
            self._confirmed.add(after)

    def lost_child(self, uid: str) -> None:
        """A child or pod of the job with this uid was deleted, by the engine or somebody else."""
        self._confirmed.discard(uid)

    async def confirm(self, observed: Observed) -> None:
        """Confirm the job by a GET, unless the job is confirmed already.

        Raises:
            NotFound: the job is gone; its store has learned so
            Conflict: the job is being deleted
            others: as any request
        """
        if observed.uid in self._confirmed:
            return
        # Added before the GET: if the job loses a child during the GET, `lost_child` removes the
        # uid, and the answer confirms nothing.
        self._confirmed.add(observed.uid)
        try:
            job = await self._live.get(observed.ref, uid=observed.uid)
            if "deletionTimestamp" in job["metadata"]:
                raise _changed_meanwhile(observed, "it is being deleted")
        except BaseException:
            self._confirmed.discard(observed.uid)
            raise

    def check(self, observed: Observed) -> None:
        """Raises: Conflict when the job is no longer confirmed; the job must be planned again"""
        if observed.uid not in self._confirmed:
            raise _changed_meanwhile(observed, "it or one of its children was deleted meanwhile")

    def _is_new(self, job: Object) -> bool:
        try:
            created = times.parse(job["metadata"].get("creationTimestamp", ""))
        except ValueError:
            return False
        return abs(self._now() - created) <= _NEW


def _changed_meanwhile(observed: Observed, why: str) -> Conflict:
    return Conflict("plan", str(observed.ref), code=409, message=why)
