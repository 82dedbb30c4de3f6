"""Decodes a large spec once, and not again with each write of the object's .status.

A tenant decides how large a spec is. A job of 1.2 MB takes 9 MB of memory when it is decoded, and
20 ms in which nothing else runs. Each write of its .status brings the whole job twice: in the
answer, and in an event of the watch. The text of the spec is the same in all of them.
"""

import hashlib
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from edgeai.api.resources import Object
from edgeai.kube.objects import MAX_DEPTH, CheckedDict, is_too_deep

LARGE_BYTES: Final = 64 * 1024
"""Smallest JSON text of an object whose spec is shared. A smaller one is decoded in 1 ms."""

_objects: Final = msgspec.json.Decoder(Object)
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class LargeSpecs:
    """A `Form` that decodes whole objects. Large objects with an equal text of .spec get the same
    dict as .spec, while any of them is in use.
    """

    def __init__(self) -> None:
        self._by_digest: WeakValueDictionary[bytes, CheckedDict] = WeakValueDictionary()

    def __call__(self, document: bytes) -> Object:
        """Raises: msgspec.DecodeError, UnicodeDecodeError, RecursionError"""
        if len(document) < LARGE_BYTES:
            return _objects.decode(document)
        return {
            name: self._spec(text) if name == "spec" else msgspec.json.decode(text)
            for name, text in _members.decode(document).items()
        }

    def _spec(self, text: msgspec.Raw) -> Any:
        digest = hashlib.sha256(text).digest()
        shared = self._by_digest.get(digest)
        if shared is not None:
            return shared
        spec = msgspec.json.decode(text)
        if not isinstance(spec, dict):
            return spec
        if is_too_deep(spec, MAX_DEPTH - 1):
            raise RecursionError
        self._by_digest[digest] = checked = CheckedDict(spec)
        return checked
