"""Scans JSON documents of any depth without recursion.

For documents that the JSON library cannot decode. The library recurses, also over fields that the
caller does not need. A scan takes about 100 ms for each MiB, so a document is scanned only after
the library has failed. The input should be JSON. For other input, and for a document that was cut
off, the functions return the parts that they recognise.
"""

import re
from collections.abc import Iterator
from typing import Final

# Matches a bracket, or a string that is closed or cut off. The possessive quantifiers (*+) keep no
# memory for backtracking.
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
    """(name, value) of each member of a JSON object. The value is the JSON text of the member.

    When the document was cut off, the last value is the part that is left.
    """
    depth = 0
    name, start = "", -1  # of the current member: name, and offset of the value; -1: no member yet
    for token in _TOKEN.finditer(document):
        first = document[token.start()]
        if first == _QUOTE:
            if depth != 1 or token.start() == start:
                continue  # this string is the current value or a part of the value
            if start >= 0:
                yield name, _trimmed(document[start : token.start()])
            colon = _COLON.match(document, token.end())
            if colon is None:
                return  # the document was cut off within this name
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
    """The JSON text of each object and array in a JSON array. The result omits other elements."""
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
    """The place where a document is nested deeper than `levels`.

    Returns: the beginning of the field's path, of limited length: "spec.template.x…"; None when no
        field is so deep
    """
    depth = 0
    path: list[str] = []  # name at each outer level, at most _MAX_KEYS; "" in an array
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
    """A member's name, cut to a limited length because errors show the name. Escapes are not
    decoded.
    """
    return token.strip(b'"').decode(errors="replace")[:_MAX_KEY_CHARS]
