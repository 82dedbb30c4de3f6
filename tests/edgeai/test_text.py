"""Control characters never reach a terminal."""

import pytest

from edgeai.text import printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain text", "plain text"),
        ("naïve Ω 模型 🙂", "naïve Ω 模型 🙂"),
        ("\x1b[2J\x1b]0;title\x07done", "[2J]0;titledone"),
        ("\x9b31mred", "31mred"),
        ("one\r\ntwo\tthree", "one  two three"),
        ("a\x00b\x7fc\u202ed\u2066e\ufefff", "abcdef"),
        ("one\u2028two", "one two"),
        ("", ""),
    ],
)
def test_control_characters_are_removed(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_no_control_character_is_left() -> None:
    every = "".join(map(chr, (*range(0x300), *range(0x2000, 0x2100))))
    assert all(ord(each) >= 0x20 and not 0x7F <= ord(each) < 0xA0 for each in printable(every))
