"""A test that a page names as its proof is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?")


def named(page: Path) -> list[tuple[str, str]]:
    return NAMED.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [*filter(named, PAGES)], ids=lambda page: page.name)
def test_each_test_that_a_page_names_exists(page: Path) -> None:
    missing = []
    for path, test in named(page):
        file = ROOT / path
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        if not re.search(rf"def {test}\b" if test else ".", text):
            missing.append(f"{path}::{test}")
    assert missing == []


def test_pages_that_promise_name_tests() -> None:
    assert all(named(ROOT / "docs" / page) for page in ("security.md", "kubeedge.md"))
