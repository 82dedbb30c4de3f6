"""Knows the jobs that the Kubernetes API has confirmed. Only these jobs get new children.

When a job is deleted, the garbage collector of Kubernetes deletes the job's children. The watch of
the jobs may be late. Then the engine sees that a child is missing before the engine sees that the
job is gone. The engine must not create the child again. The collector deletes a child only after
the job is gone, and a GET shows whether the job exists at that moment. So there is one rule: after
a job has lost a child, a GET must confirm the job before the engine creates anything for the job.

The plan must also know the job as the GET shows the job. Otherwise a new leader, whose watch of the
jobs is late, could create a child that the status of an earlier leader no longer asks for. So a new
leader asks for each job once before it creates anything for the job. For the same reason it asks
before it deletes a child: an old status may not name a child that the earlier leader has made.
"""

from datetime import timedelta
from typing import Final

from common.clock import Clock
from edgeai import times
from edgeai.api.resources import Object
from edgeai.kube.errors import Conflict
from globalmanager.cache.live import Live
from globalmanager.cache.store import uid_of
from globalmanager.contract import Observed

# A new job needs no GET, because a healthy watch delivers it within milliseconds. When the clocks
# of the GlobalManager and the API server differ by more than this, each new job costs one GET.
_NEW: Final = timedelta(seconds=5)


class Owners:
    """The jobs that may get new children. The memory holds one uid for each confirmed job."""

    def __init__(self, live: Live, clock: Clock) -> None:
        self._live = live
        self._clock = clock
        self._confirmed: set[str] = set()  # uids of jobs

    def changed(self, old: Object | None, new: Object | None) -> None:
        """Note a change of a job in its store. None: there was, or is now, no job."""
        before, after = (uid_of(object_) if object_ is not None else "" for object_ in (old, new))
        if before == after:
            return
        self._confirmed.discard(before)
        if new is not None and self._is_new(new):
            self._confirmed.add(after)

    def lost_child(self, uid: str) -> None:
        """Note that somebody has deleted a child or pod of the job with this uid."""
        self._confirmed.discard(uid)

    def begin_reign(self) -> None:
        """Note that another replica may have worked on all jobs until now."""
        self._confirmed.clear()

    async def confirm(self, observed: Observed) -> None:
        """Confirm the job by a GET, unless the job is confirmed already.

        Raises:
            NotFound: the job is gone, and the store has removed the job
            Conflict: the job is being deleted, or has changed; the store has the new state
            ApiError, Overloaded: as for any request
        """
        if observed.uid in self._confirmed:
            return
        # The uid of the job counts as confirmed from before the GET. If a child of the job is
        # deleted during the GET, `lost_child` removes the uid again, and the next plan asks again.
        self._confirmed.add(observed.uid)
        try:
            job = await self._live.get(observed.ref, uid=observed.uid)
            if "deletionTimestamp" in job["metadata"]:
                raise _changed_meanwhile(observed, "it is being deleted")
        except BaseException:
            self._confirmed.discard(observed.uid)
            raise
        known, generation = observed.object, job["metadata"].get("generation")
        is_same_spec = known["metadata"].get("generation") == generation
        if not is_same_spec or known.get("status") != job.get("status"):
            # The job stays confirmed for the next plan, which knows this answer.
            raise _changed_meanwhile(observed, "its spec or status is newer than the plan")

    def check(self, observed: Observed) -> None:
        """Raises: Conflict when the job is no longer confirmed, and must be planned again"""
        if observed.uid not in self._confirmed:
            raise _changed_meanwhile(observed, "it or one of its children was deleted meanwhile")

    def _is_new(self, job: Object) -> bool:
        try:
            creation = times.parse(job["metadata"].get("creationTimestamp", ""))
        except ValueError:
            return False
        return abs(self._clock.utcnow() - creation) <= _NEW


def _changed_meanwhile(observed: Observed, why: str) -> Conflict:
    return Conflict("plan", str(observed.ref), code=409, message=why)
