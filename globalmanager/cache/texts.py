"""Keeps equal texts of cached objects once.

The decoder makes a new string for each value. Most values of a pod are also in other pods, or
several times in the same pod: the image, the node, the types and times of conditions. With equal
texts once, a pod takes a third less memory.
"""

from typing import Any, Final

from edgeai.api.resources import Object

_MAX_TEXTS: Final = 8192  # remembered; about 1 MiB
_MAX_CHARS: Final = 64  # of a remembered text; longer ones are seldom equal


class SharedTexts:
    """The texts that were seen lately. When there are too many, all are forgotten; then the next
    objects share texts with each other, but not with earlier objects.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def share(self, object_: Object, old: Object | None = None) -> None:
        """Replace the texts in an object by equal texts that were seen before.

        Args: old: an object whose fields have shared texts already; a field that is the same dict
            as there is left out
        """
        for name, value in object_.items():
            if old is None or value is not old.get(name):
                object_[name] = self._shared(value)
        if len(self._texts) > _MAX_TEXTS:
            self._texts.clear()

    def _shared(self, value: Any) -> Any:
        # The types are compared exactly: a CheckedDict is shared by objects already.
        if type(value) is str:
            return self._texts.setdefault(value, value) if len(value) <= _MAX_CHARS else value
        if type(value) is dict:
            for key, inner in value.items():
                if type(inner) in _WITH_TEXTS:
                    value[key] = self._shared(inner)
        elif type(value) is list:
            value[:] = map(self._shared, value)
        return value


_WITH_TEXTS: Final = frozenset({str, dict, list})
