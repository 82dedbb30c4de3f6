"""Every link of the docs leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_exist(page: Path) -> None:
    targets = [target for target, _ in LINK.findall(page.read_text()) if "://" not in target]
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert missing == []
