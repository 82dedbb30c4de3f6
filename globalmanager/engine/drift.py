"""Decides when the engine corrects drift and when it gives way. Drift means that somebody else, a
person or a controller, has changed a child.

The engine restores the child. When the same field is changed again after two restores, the engine
leaves the field alone. Otherwise the two would overwrite each other for ever. Nor does it correct
what the API server or an admission webhook changes in its answer to a write, because that would
come back at every write. A restart of the process forgets all corrections, which costs one or two
more attempts for each such child.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from common.clock import Clock
from edgeai.api.resources import Object
from edgeai.newest import NewestKeys
from globalmanager.cache.store import uid_of
from globalmanager.kinds.shared.objects import content_hash, differences

MAX_RESTORES: Final = 2
"""How often in a row the engine restores one field of a child."""
PAUSE_S: Final = 5.0
"""Seconds before the second restore of a child. Each further one, of other fields, doubles it."""
MAX_PAUSE_S: Final = 600.0
FORGOTTEN_S: Final = 1200.0
"""When a child was in order for this number of seconds, its next change counts as the first."""
_MAX_CHILDREN: Final = 4096  # largest number of children in memory


class _Corrections(msgspec.Struct):
    """The corrections of one child."""

    answered: dict[str, str] = {}
    """Path -> hash of the value of each field that the answer to the last write had changed."""
    restores: dict[str, int] = {}
    """Path -> how often in a row the engine has restored the field."""
    restored: int = 0
    """How often in a row the engine has restored the child, whatever the fields."""
    restored_at: float = 0.0
    """Time of the last restore, in seconds of the clock."""
    left: tuple[str, ...] = ()
    """The fields that the engine leaves alone at present."""
    in_order_since: float | None = None
    """Time of the first plan that found no drift after a restore; None while there is drift."""


class Drift:
    """Remembers the corrections of the children of all jobs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # child's uid -> corrections, newest last
        self._children = NewestKeys[str, _Corrections](_MAX_CHILDREN)

    def wait_s(self, desired: Object, existing: Object) -> float | None:
        """Seconds until `existing` may be replaced; 0 for now; None: never, see `left_alone`."""
        corrections = self._children.get(uid_of(existing))
        if corrections is None:
            return 0.0
        now = self._clock.elapsed()
        since, corrections.in_order_since = corrections.in_order_since, None
        if since is not None and now - since >= FORGOTTEN_S:
            corrections.restores, corrections.restored = {}, 0
        fields = differences(desired, existing)
        if all(_is_left_alone(corrections, path, value) for path, value in fields.items()):
            corrections.left = tuple(fields)
            return None
        corrections.left = ()
        pause_s = _pause_s(corrections.restored)
        return max(0.0, corrections.restored_at + pause_s - now)

    def left_alone(self, child: Object) -> tuple[str, ...]:
        """Paths of the drifted fields that the engine leaves alone, as `wait_s` has found them."""
        corrections = self._children.get(uid_of(child))
        return corrections.left if corrections is not None else ()

    def note_in_order(self, child: Object) -> None:
        """Remember that a plan found no drift in the child."""
        corrections = self._children.get(uid_of(child))
        if corrections is not None and corrections.in_order_since is None:
            corrections.left, corrections.in_order_since = (), self._clock.elapsed()

    def note_write(
        self, desired: Object, answer: Object, *, drifted: Mapping[str, Any] | None = None
    ) -> None:
        """Remember a write of the child.

        Args: drifted: path -> value of each field that somebody else had changed, when the write
            restored the child
        """
        corrections = self._children.pop(uid_of(answer), _Corrections())
        fields = differences(desired, answer)
        corrections.answered = {path: content_hash(value) for path, value in fields.items()}
        if drifted is None:  # the job wants another child now
            corrections.restores, corrections.restored = {}, 0
        else:
            restores = corrections.restores
            corrections.restores = restores | {path: restores.get(path, 0) + 1 for path in drifted}
            corrections.restored += 1
            corrections.restored_at = self._clock.elapsed()
        corrections.left, corrections.in_order_since = (), None
        if corrections.answered or corrections.restored:
            self._children[uid_of(answer)] = corrections


def _is_left_alone(corrections: _Corrections, path: str, value: Any) -> bool:
    if corrections.answered.get(path) == content_hash(value):
        return True
    return corrections.restores.get(path, 0) >= MAX_RESTORES


def _pause_s(restores: int) -> float:
    """Least seconds between this number of restores in a row and the next restore."""
    # 2**32 times PAUSE_S is above MAX_PAUSE_S already. A float cannot hold a much larger power.
    return min(MAX_PAUSE_S, PAUSE_S * 2.0 ** min(restores - 1, 32)) if restores else 0.0
