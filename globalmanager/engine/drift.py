"""Delays repeated corrections of drift, that is of children that somebody else has changed.

A person or another controller may change a child of a job. The engine restores the child, but
waits longer before each further time: otherwise the engine and the other controller would overwrite
each other for ever. A difference in the API server's answer to a write is not corrected at all: the
server (a quantity in another notation) or an admission webhook would make it again at every write.

Called by apply with each child that it writes and with the answer of the API server. A restart of
the process forgets all, which costs one more attempt for each such child.
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
"""Seconds before a child is restored for the second time. The pause doubles with each time."""
MAX_S: Final = 600.0
"""The longest pause, seconds."""
_QUIET_S: Final = 2 * MAX_S
"""After so many seconds without a restore, the next restore counts as the first."""
_MAX_CHILDREN: Final = 4096  # children that are remembered at most


class _Corrections(msgspec.Struct):
    """The corrections of one child."""

    server_differences: str = ""
    """Hash of the differences between the child as it was sent and the API server's answer to the
    write; "" when there is no difference."""
    restores: int = 0
    """How often in a row the child was restored."""
    restored_at: float = 0.0
    """Time of the last restore, seconds of the clock."""


class Drift:
    """Remembers how often the children of all jobs were restored.

    Args:
        clock: seconds, monotonic
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._children: OrderedDict[str, _Corrections] = OrderedDict()  # by uid, the newest last

    def wait_s(self, desired: Object, existing: Object) -> float | None:
        """Seconds until `existing` may be replaced by `desired`, 0 for now; None: never, because
        `existing` differs from `desired` only as the API server's answer to the last write did.
        """
        corrections = self._children.get(uid_of(existing))
        if corrections is None:
            return 0.0
        if corrections.server_differences == content_hash(differences(desired, existing)):
            return None
        passed_s = self._clock() - corrections.restored_at
        pause_s = backoff_s(corrections.restores, base_s=FIRST_S, max_s=MAX_S)
        return 0.0 if passed_s >= _QUIET_S else max(0.0, pause_s - passed_s)

    def note_write(self, desired: Object, answer: Object, *, is_drift: bool = False) -> int:
        """Remember that the child was written.

        Args:
            desired: the child as it was sent
            answer: the child as the API server has stored it
            is_drift: the write restored a child that somebody else had changed

        Returns: how often in a row the child was restored
        """
        corrections = self._children.pop(uid_of(answer), _Corrections())
        found = differences(desired, answer)
        corrections.server_differences = content_hash(found) if found else ""
        if is_drift:
            now = self._clock()
            is_repeated = now - corrections.restored_at < _QUIET_S
            corrections.restores = corrections.restores + 1 if is_repeated else 1
            corrections.restored_at = now
        if corrections.server_differences or corrections.restores:
            self._children[uid_of(answer)] = corrections
        if len(self._children) > _MAX_CHILDREN:
            self._children.popitem(last=False)
        return corrections.restores
