"""Takes JSON documents apart without recursion, whatever their depth.

Called by `objects` for what the JSON library cannot decode: that one recurses, even over fields
that nobody asked for. Some 100 ms for each MiB, so only where decoding has failed. Expects JSON;
of anything else, and of a document that was cut off, it gives what it makes out.
"""

import re
from collections.abc import Iterator
from typing import Final

# A string, closed or cut off, or a bracket. Possessive: no memory for steps back is kept.
_TOKEN: Final = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\]]',
    re.DOTALL,
)
_COLON: Final = re.compile(rb"\s*:\s*")
_QUOTE, _COMMA = b'"'[0], b","
_OPENING: Final = frozenset(b"{[")
_MAX_KEYS: Final = 6
_MAX_KEY_CHARS: Final = 64


def members(document: bytes) -> Iterator[tuple[str, bytes]]:
    """(name, value) of each member of a JSON object, the values as they are written.

    The last value of a document that was cut off is what there is of it.
    """
    depth = 0
    name, start = "", -1  # of the member whose value is being passed; -1: of none
    for token in _TOKEN.finditer(document):
        first = document[token.start()]
        if first == _QUOTE:
            if depth != 1 or token.start() == start:
                continue  # within a value, or all of it
            if start >= 0:
                yield name, _trimmed(document[start : token.start()])
            colon = _COLON.match(document, token.end())
            if colon is None:
                return  # a name that was cut off
            name, start = _key(token[0]), colon.end()
        elif first in _OPENING:
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                if start >= 0:
                    yield name, _trimmed(document[start : token.start()])
                return
    if start >= 0:
        yield name, document[start:]


def elements(document: bytes) -> Iterator[bytes]:
    """The objects and arrays in a JSON array, as they are written; others are left out."""
    depth, start = 0, 0
    for token in _TOKEN.finditer(document):
        first = document[token.start()]
        if first == _QUOTE:
            continue
        if first in _OPENING:
            depth += 1
            if depth == 2:
                start = token.start()
        else:
            depth -= 1
            if depth == 1:
                yield document[start : token.end()]
            elif depth == 0:
                return


def deeper_than(document: bytes, levels: int) -> str | None:
    """The path to where a document is nested deeper than `levels`: "spec.template.x…", bounded.

    Returns: None when it is not
    """
    depth = 0
    path: list[str] = []  # one for each level around, as many as are shown; "" for an array's
    for token in _TOKEN.finditer(document):
        first = document[token.start()]
        if first == _QUOTE:
            if 0 < depth <= _MAX_KEYS and _COLON.match(document, token.end()):
                path[depth - 1] = _key(token[0])
        elif first in _OPENING:
            depth += 1
            if depth > levels:
                return ".".join(filter(None, path)) + "…"
            if depth <= _MAX_KEYS:
                path.append("")
        elif depth > 0:
            if depth <= _MAX_KEYS:
                path.pop()
            depth -= 1
    return None


def _trimmed(value: bytes) -> bytes:
    return value.rstrip().removesuffix(_COMMA).rstrip()


def _key(token: bytes) -> str:
    """A member's name; bounded, since it is shown. Escapes in it stay as they are written."""
    return token.strip(b'"').decode(errors="replace")[:_MAX_KEY_CHARS]
