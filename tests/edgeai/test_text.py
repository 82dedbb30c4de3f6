"""Control characters never reach a terminal, and words stay whole where a text is cut."""

import pytest

from edgeai.text import printable, shortened


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


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("all of it", 12, "all of it"),
        ("a reason that is cut", 12, "a reason…"),
        ("a reason, that is cut", 12, "a reason…"),
        ("x" * 100, 60, "x" * 59 + "…"),
    ],
)
def test_a_text_is_cut_between_words(text: str, limit: int, expected: str) -> None:
    assert shortened(text, limit) == expected
