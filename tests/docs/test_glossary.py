"""The glossary is short, its words are those of the code, and the code has no retired word."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
CODE: Final = ("common", "globalmanager", "localcontroller", "edgeai")
MAX_WORDS: Final = 25
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def tables() -> tuple[list[list[str]], list[list[str]]]:
    """The rows of the glossary and the rows of the retired words, without their heads."""
    page = (ROOT / "docs" / "glossary.md").read_text()
    words, _, retired = page.partition("## Retired words")
    return _rows(words), _rows(retired)


def _rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.fixture(scope="module")
def names() -> frozenset[str]:
    """Every identifier of the code as words in lower case, with spaces around: " set aside "."""
    found: set[str] = set()
    for folder in CODE:
        for path in (ROOT / folder).rglob("*.py"):
            found.update(_identifiers(path))
    return frozenset(_as_words(name) for name in found)


def _identifiers(path: Path) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.NAME:
            yield token.string


def _as_words(name: str) -> str:
    return " ".join(["", *(word.lower() for word in _WORD.findall(name)), ""])


WORDS, RETIRED = tables()
RETIRED_WORDS: Final = [word for row in RETIRED for word in re.findall("`(.+?)`", row[0])]


def test_the_glossary_is_short_and_has_each_word_once() -> None:
    words = [word for word, _meaning, _room in WORDS]
    assert 0 < len(words) <= MAX_WORDS
    assert len(set(words)) == len(words)


@pytest.mark.parametrize(("word", "meaning", "room"), WORDS, ids=[row[0] for row in WORDS])
def test_a_word_is_used_in_code_has_a_short_meaning_and_a_room(
    names: frozenset[str], word: str, meaning: str, room: str
) -> None:
    plural = "children" if word == "child" else f"{word}s"
    assert any(f" {form} " in name for name in names for form in (word, plural))
    assert 1 <= len(re.findall(r"[.](?= |$)", meaning)) <= 2, meaning
    assert (ROOT / room.strip("`")).exists()


@pytest.mark.parametrize("word", RETIRED_WORDS)
def test_a_retired_word_is_in_no_name(names: frozenset[str], word: str) -> None:
    assert [name for name in names if _as_words(word) in name] == []


@pytest.mark.parametrize("page", ["docs/README.md", "CONTRIBUTING.md", "docs/architecture.md"])
def test_pages_that_newcomers_read_lead_to_the_glossary(page: str) -> None:
    assert "glossary.md" in (ROOT / page).read_text()
