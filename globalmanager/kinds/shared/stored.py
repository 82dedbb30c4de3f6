"""How many bytes a value takes in the Kubernetes API's storage, and how to cut texts to a size.

Go's encoder writes some characters as six bytes, so a limit on characters bounds nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

# Go's encoder writes each of these characters as six bytes, for example < as \u003c. The value is
# the difference from the bytes of the character in msgspec's JSON.
_ESCAPED_BY_GO: Final = {b"<": 5, b">": 5, b"&": 5, b"\xe2\x80\xa8": 3, b"\xe2\x80\xa9": 3}
_QUOTES: Final = 2


def stored_bytes(value: Any) -> int:
    """The size of a JSON value in the storage of the Kubernetes API."""
    encoded = msgspec.json.encode(value)
    return len(encoded) + sum(
        more * encoded.count(sequence) for sequence, more in _ESCAPED_BY_GO.items()
    )


def cut(text: str, max_bytes: int) -> str:
    """The longest beginning of `text` that takes at most `max_bytes`, without quotation marks."""
    # A character takes one byte at least, so the search need not encode what cannot fit.
    text = text[:max_bytes]
    if stored_bytes(text) <= max_bytes + _QUOTES:
        return text
    fits, too_long = 0, len(text)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if stored_bytes(text[:middle]) <= max_bytes + _QUOTES:
            fits = middle
        else:
            too_long = middle
    return text[:fits]


def fitting(entries: Mapping[str, Any], max_bytes: int) -> dict[str, Any]:
    """The entries that fit into a map of `max_bytes`, in order, also a later, smaller one."""
    fits: dict[str, Any] = {}
    rest = max_bytes - _QUOTES  # braces
    for key, value in entries.items():
        size = stored_bytes({key: value}) - _QUOTES + 1  # a comma
        if size <= rest:
            fits[key] = value
            rest -= size
    return fits
