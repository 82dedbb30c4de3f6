"""Says for which job resources something may be created: for those that the API has confirmed.

The garbage collector removes the children of a job that is gone, and the watch of the jobs may be
late, so a missing child does not mean that it must be made again. But the collector acts only
after the end of the job, and each answer to a GET is true at that time. So the rule is: after a
job lost a child, the API must confirm the job before anything is created for it.

Called by apply, and told by loop what the stores say. Keeps one uid for each job.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from common import times
from globalmanager.cache.store import uid_of
from globalmanager.contract import Object, Observed
from globalmanager.engine.live import Live
from globalmanager.kube.errors import Conflict

# A watch in order tells of a new job within milliseconds. A clock that differs by more than this
# costs one more request for each new job.
_NEW: Final = timedelta(seconds=5)


class Owners:
    """
    Args:
        live: asks for job resources
        now: UTC
    """

    def __init__(self, live: Live, now: Callable[[], datetime]) -> None:
        self._live = live
        self._now = now
        self._confirmed: set[str] = set()  # uids

    def changed(self, old: Object | None, new: Object | None) -> None:
        """The store has another state of a job resource: None before it is there, and after."""
        before, after = (uid_of(each) if each is not None else "" for each in (old, new))
        if before == after:
            return
        self._confirmed.discard(before)
        if new is not None and self._is_new(new):
            self._confirmed.add(after)

    def lost_child(self, uid: str) -> None:
        """Something that belongs to the job resource with `uid` was deleted, by whomever."""
        self._confirmed.discard(uid)

    async def confirm(self, observed: Observed) -> None:
        """Ask the API, unless the job is confirmed.

        Raises:
            NotFound: it is gone, and the store knows
            Conflict: it is being deleted
            others: as any request
        """
        if observed.uid in self._confirmed:
            return
        self._confirmed.add(observed.uid)  # before asking: a child may be lost meanwhile
        try:
            job = await self._live.get(observed.ref, uid=observed.uid)
            if "deletionTimestamp" in job["metadata"]:
                raise _changed_meanwhile(observed, "it is being deleted")
        except BaseException:
            self._confirmed.discard(observed.uid)
            raise

    def check(self, observed: Observed) -> None:
        """Raises: Conflict when the job is not confirmed any more; plan again"""
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
