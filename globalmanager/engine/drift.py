"""Slows down what is put back again and again, and leaves alone what the API server will not keep.

Somebody else may change a child of a job: a person, a webhook, or a controller that never stops.
Putting the child back once is right; doing so for ever would make two writers that never settle.
Called by apply, which shows what it wrote and what the API server made of that. What is remembered
is lost with the process: a restart costs one more attempt for each such child.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from globalmanager.cache.store import uid_of
from globalmanager.contract import Object
from globalmanager.rules.lifecycle import backoff_s
from globalmanager.rules.objects import content_hash, differences

FIRST_S: Final = 5.0
MAX_S: Final = 600.0
"""Pause before one child is put back a second time; it doubles up to the longest."""
_QUIET_S: Final = 2 * MAX_S
"""After so long without an attempt the next one is the first again."""
_MAX_CHILDREN: Final = 4096


class _Child(msgspec.Struct):
    """What is known of one child."""

    kept: str = ""
    """Hash of the differences that the API server itself made of what was written; "" for none."""
    times: int = 0
    """How often in a row it was put back."""
    at: float = 0.0
    """When it was last put back, seconds of the clock."""


class Drift:
    """
    Args:
        clock: seconds, monotonic
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._children: OrderedDict[str, _Child] = OrderedDict()  # by uid, the newest last

    def wait_s(self, desired: Object, existing: Object) -> float | None:
        """Seconds until `existing` may be put back, 0 for now; None: the server keeps it so."""
        child = self._children.get(uid_of(existing))
        if child is None:
            return 0.0
        if child.kept == content_hash(differences(desired, existing)):
            return None
        passed_s = self._clock() - child.at
        pause_s = backoff_s(child.times, base_s=FIRST_S, max_s=MAX_S)
        return 0.0 if passed_s >= _QUIET_S else max(0.0, pause_s - passed_s)

    def written(self, desired: Object, answer: Object, *, is_drift: bool = False) -> int:
        """`answer` is what the API server made of `desired`.

        Args: is_drift: the desired puts back what others had changed
        Returns: how often in a row the child was put back
        """
        child = self._children.pop(uid_of(answer), _Child())
        found = differences(desired, answer)
        child.kept = content_hash(found) if found else ""
        if is_drift:
            now = self._clock()
            child.times = child.times + 1 if now - child.at < _QUIET_S else 1
            child.at = now
        if child.kept or child.times:  # else there is nothing to remember
            self._children[uid_of(answer)] = child
        if len(self._children) > _MAX_CHILDREN:
            self._children.popitem(last=False)
        return child.times
