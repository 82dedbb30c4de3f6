"""Keeps equal values of cached objects once.

The decoder makes a new string for each value. Most values of a pod are also in other pods, or
several times in the same pod: the image, the node, the types and times of conditions. The same is
true of whole lists: the owners, the containers, the ports. With equal values once, a pod takes half
the memory.
"""

import marshal
from typing import Any, Final

from edgeai.api.resources import Object

_MAX_TEXTS: Final = 8192  # remembered; about 1 MiB
_MAX_CHARS: Final = 64  # of a remembered text; longer ones are seldom equal
_MAX_CONTAINERS: Final = 2048  # remembered; at most 2 MiB of keys, and usually 0.5
_MAX_ITEMS: Final = 4  # of a remembered list or dict; larger ones are seldom equal
_MAX_BYTES: Final = 1024  # of a remembered list or dict
_MARSHAL_VERSION: Final = 2  # the last one in which equal values have equal bytes


class SharedValues:
    """The texts, lists and dicts that were seen lately. When there are too many, all are forgotten;
    then the next objects share values with each other, but not with earlier objects.
    """

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._containers: dict[bytes, Any] = {}

    def __len__(self) -> int:
        return len(self._texts) + len(self._containers)

    def share(self, object_: Object, old: Object | None = None) -> None:
        """Replace the values in an object by equal values that were seen before.

        Args: old: an object whose fields have shared values already; a field that is the same dict
            as there is left out
        """
        for name, value in object_.items():
            if old is None or value is not old.get(name):
                object_[name] = self._shared(value)
        if len(self._texts) > _MAX_TEXTS:
            self._texts.clear()
        if len(self._containers) > _MAX_CONTAINERS:
            self._containers.clear()

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
        else:
            return value
        return self._shared_container(value) if len(value) <= _MAX_ITEMS else value

    def _shared_container(self, value: Any) -> Any:
        try:
            document = marshal.dumps(value, _MARSHAL_VERSION)
        except ValueError:  # it has a CheckedDict
            return value
        if len(document) > _MAX_BYTES:
            return value
        return self._containers.setdefault(document, value)


_WITH_TEXTS: Final = frozenset({str, dict, list})
