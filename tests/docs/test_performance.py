"""docs/performance.md and CHANGELOG.md stay short; the page names the sections of `make bench`."""

import re
from pathlib import Path

from tests.bench.__main__ import SECTIONS

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
MOST_WORDS = 1500
"""What was measured, how, and the newest figures; the history of a choice is in its decision."""


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text(encoding="utf-8").split()) <= MOST_WORDS


def test_the_sections_of_the_page_are_those_of_the_benchmark() -> None:
    sections = re.findall(r"[sS]ection `([a-z-]+)`", PAGE.read_text(encoding="utf-8"))
    assert sorted(sections) == sorted(SECTIONS)


def test_the_changelog_holds_what_an_upgrade_needs_and_no_more() -> None:
    changes = (PAGE.parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(changes.splitlines()) <= 150
