"""A test that a page names as its proof is there."""

import re
from pathlib import Path

import pytest

from globalmanager.kinds import KINDS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "kinds").glob("*.md")])
MIGRATION = ROOT / "docs" / "migrate-from-sedna.md"
MIGRATIONS = {
    MIGRATION: 25,
    **{ROOT / "docs" / f"migrate-from-{name}-operator.md": 20 for name in ("training", "et")},
}
"""Page -> the least number of its comparisons."""
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
    assert all(
        named(ROOT / "docs" / page) for page in ("security.md", "kubeedge.md", MIGRATION.name)
    )


@pytest.mark.parametrize("page", MIGRATIONS, ids=lambda page: page.name)
def test_every_comparison_names_a_test(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (?!what|of a job)(.*) \|$", text.partition("## What you")[2], re.MULTILINE
    )
    assert len(rows) > MIGRATIONS[page]
    assert [row for row in rows if not NAMED.search(row)] == []


def test_the_kinds_of_the_training_operator_that_are_served() -> None:
    served = {
        type_.kind for kind in KINDS for type_ in kind.resources if type_.group == "kubeflow.org"
    }
    assert served == {"TFJob", "PyTorchJob"}


def test_the_kinds_of_sedna_that_are_served() -> None:
    text = MIGRATION.read_text(encoding="utf-8")
    served = {type_.kind for kind in KINDS for type_ in kind.resources if type_.group == "sedna.io"}
    named_as_served, refused = (
        set(re.findall(r"\b[A-Z]\w*(?:Service|Job)\b|\bDataset\b|\bModel\b", part))
        for part in (
            text.partition("edgeai serves ")[2].partition(" of `sedna.io")[0],
            text.partition("5. **")[2].partition("are not served")[0],
        )
    )
    assert named_as_served == served
    assert len(refused) == 7
    assert not refused & served
