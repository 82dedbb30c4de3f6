"""Text of strangers for a terminal, a status or a log. Pure."""

from collections.abc import Sequence
from typing import Final

_SPACES: Final = "\t\n\r\v\f\x85\u2028\u2029"
_DIRECTIONS: Final = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_TABLE: Final = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), *map(ord, _DIRECTIONS), 0xFEFF)),
    **{ord(space): " " for space in _SPACES},
}
_LONG_WORD: Final = 40  # characters


def printable(text: str) -> str:
    """The text without characters that control a terminal. Line ends and tabs become spaces."""
    return text if text.isascii() and text.isprintable() else text.translate(_TABLE)


def listing(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """The first ones: "a, b and 3 more"."""
    more = len(texts) - most
    return separator.join(texts[:most]) + (f" and {more} more" if more > 0 else "")


def shortened(text: str, limit: int) -> str:
    """The text, or its first words and "…" within `limit` characters. A long last word is cut."""
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    place = head.rfind(" ")
    is_long = len(head) - place > _LONG_WORD
    return (head if is_long else head[:place].rstrip(" ,;:")) + "…"
