"""Delays repeated corrections of drift. Drift means that somebody else has changed a child.

A person or another controller may change a child of a job. The engine restores the child, but waits
longer before each further restore. Otherwise the engine and the other controller would overwrite
each other for ever.

The API server's answer to a write may differ from the child that the engine sent. The server may
write a quantity in another notation, or an admission webhook may change a field. The engine does
not correct such a difference, because it would come back at every write.

Called by apply with each child that it writes, and with the answer of the API server. A restart of
the process forgets all corrections, which costs one more attempt for each such child.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from globalmanager.cache.store import uid_of
from globalmanager.contract import Object
from globalmanager.rules.objects import content_hash, differences

FIRST_S: Final = 5.0
"""Seconds before the second restore of a child. The pause doubles with each further restore."""
MAX_S: Final = 600.0
"""The longest pause, in seconds."""
_QUIET_S: Final = 2 * MAX_S
"""After this number of seconds without a restore, the next restore counts as the first."""
_MAX_CHILDREN: Final = 4096  # largest number of children in memory


class _Corrections(msgspec.Struct):
    """The corrections of one child."""

    server_differences: str = ""
    """Hash of the differences between the child that the engine sent and the API server's answer;
    "" when they are equal."""
    restores: int = 0
    """How often in a row the engine has restored the child."""
    restored_at: float = 0.0
    """Time of the last restore, in seconds of the clock."""


class Drift:
    """Remembers how often the children of all jobs were restored.

    Args:
        clock: seconds, monotonic
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # child's uid -> corrections, newest last
        self._children: OrderedDict[str, _Corrections] = OrderedDict()

    def wait_s(self, desired: Object, existing: Object) -> float | None:
        """Seconds until the engine may replace `existing` by `desired`; 0 for now. None means
        never, because `existing` differs from `desired` only in the same fields as the API server's
        answer to the last write.
        """
        corrections = self._children.get(uid_of(existing))
        if corrections is None:
            return 0.0
        if corrections.server_differences == content_hash(differences(desired, existing)):
            return None
        passed_s = self._clock() - corrections.restored_at
        pause_s = _pause_s(corrections.restores)
        return 0.0 if passed_s >= _QUIET_S else max(0.0, pause_s - passed_s)

    def note_write(self, desired: Object, answer: Object, *, is_drift: bool = False) -> int:
        """Remember a write of the child.

        Args:
            desired: the child that the engine sent
            answer: the child that the API server has stored
            is_drift: True when the write restored a child that somebody else had changed

        Returns: how often in a row the engine has restored the child
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


def _pause_s(restores: int) -> float:
    """Least seconds between this number of restores in a row and the next restore."""
    # 2**32 times FIRST_S is above MAX_S already. A float cannot hold a much larger power of 2.
    return min(MAX_S, FIRST_S * 2.0 ** min(restores - 1, 32)) if restores else 0.0
