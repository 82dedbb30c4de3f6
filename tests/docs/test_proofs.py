"""Every promise of a page for users has a proof in docs/proofs.md, and each proof is there."""

import ast
import functools
import re
from pathlib import Path
from typing import Final

import msgspec
import pytest

from globalmanager.kinds import KINDS

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
MIGRATION: Final = DOCS / "migrate-from-sedna.md"
TEST: Final = re.compile(r"`(tests/[^`:]+\.py)(?:::(\w+))?`")
NAME_TESTS: Final = {
    *("adding-a-kind.md", "adding-a-training-kind.md", "simulation.md", "proofs.md", "protocol.md"),
    # Tests stand beside what was tried by hand.
    "kubeedge.md",
}
"""Pages that name tests themselves."""
PAGES: Final = sorted([*DOCS.glob("*.md"), *(DOCS / "kinds").glob("*.md")])
PROMISES: Final = {
    "security.md": 80,
    "kinds/jointinferenceservice.md": 12,
    "migrate-from-sedna.md": 35,
    "migrate-from-training-operator.md": 30,
    "migrate-from-et-operator.md": 28,
    "troubleshooting.md": 39,
}
"""Page -> the least number of its rows that need a proof."""
NO_PROMISES: Final = {
    ("kinds/jointinferenceservice.md", "Which samples are hard"),
    ("kinds/jointinferenceservice.md", "What a worker finds in its environment"),
    ("migrate-from-sedna.md", "Which group"),
    # tests/globalmanager/kinds/test_pods_that_stay.py compares each row with its tests.
    ("troubleshooting.md", "A pod that does not go"),
}
"""Tables that explain, or that have a test of their own."""


class Proof(msgspec.Struct, frozen=True):
    claim: str
    tests: str


def sections(page: str, level: str = "##") -> dict[str, str]:
    """Heading -> what follows it. Args: page: path below docs/"""
    text = (DOCS / page).read_text(encoding="utf-8")
    parts = re.split(rf"^{level} (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str) -> list[list[str]]:
    """The cells of all tables of a section, without their heads."""
    tables = re.findall(r"^\|.*\n\|[-|]+\|\n((?:\|.*\n?)+)", text, re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


def proofs() -> dict[tuple[str, str], list[Proof]]:
    """Page and heading -> its proofs, in their order."""
    return {
        (page, heading): [Proof(*cells) for cells in rows(text)]
        for name, text in sections("proofs.md", "###").items()
        for heading, page in re.findall(r"\[(.+)\]\(([^)#]+)#", name)
    }


def promises(page: str) -> dict[str, list[list[str]]]:
    """Heading -> the rows that need a proof."""
    return {
        heading: rows(text)
        for heading, text in sections(page).items()
        if rows(text) and (page, heading) not in NO_PROMISES
    }


@functools.cache
def functions_of(source: Path) -> set[str]:
    """The names of all test functions, also those of classes."""
    nodes = ast.walk(ast.parse(source.read_text(encoding="utf-8")))
    functions = (n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return {each.name for each in functions if each.name.startswith("test_")}


def missing(text: str) -> list[str]:
    """The tests that a text names and that do not exist."""
    return [
        f"{path}::{test}"
        for path, test in TEST.findall(text)
        if not (ROOT / path).is_file() or (test and test not in functions_of(ROOT / path))
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_test_that_a_page_names_exists(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8")) == []


def test_each_proof_names_a_test() -> None:
    unproven = [
        each.claim
        for entries in proofs().values()
        for each in entries
        if not TEST.search(each.tests)
    ]
    assert unproven == []


@pytest.mark.parametrize("page", PROMISES)
def test_each_promise_has_a_proof(page: str) -> None:
    tables = promises(page)
    assert sum(map(len, tables.values())) >= PROMISES[page]
    proven = {heading: entries for (name, heading), entries in proofs().items() if name == page}
    assert list(proven) == list(tables)
    for heading, table in tables.items():
        claims = [each.claim for each in proven[heading]]
        wrong = [
            (claim, row)
            for claim, row in zip(claims, table, strict=True)
            if not any(cell.startswith(claim) for cell in row)
        ]
        assert wrong == [], heading


def test_each_claim_about_a_text_is_in_it() -> None:
    texts = {key: entries for key, entries in proofs().items() if key[0] not in PROMISES}
    assert texts
    for (page, heading), entries in texts.items():
        text = " ".join(sections(page)[heading].split())
        assert [each.claim for each in entries if each.claim not in text] == []


def test_pages_for_users_name_no_tests() -> None:
    named = {page.name for page in PAGES if TEST.search(page.read_text(encoding="utf-8"))}
    assert named - NAME_TESTS == set()


def test_the_kinds_of_the_training_operator_that_are_served() -> None:
    served = {
        type_.kind
        for kind in KINDS
        for type_ in kind.definition.resources
        if type_.group == "kubeflow.org"
    }
    assert served == {"TFJob", "PyTorchJob"}


def test_the_kinds_of_sedna_that_are_served() -> None:
    text = MIGRATION.read_text(encoding="utf-8")
    served = {
        type_.kind
        for kind in KINDS
        for type_ in kind.definition.resources
        if type_.group == "sedna.io"
    }
    named_as_served, refused = (
        set(re.findall(r"\b[A-Z]\w*(?:Service|Job)\b|\bDataset\b|\bModel\b", part))
        for part in (
            text.partition("edgeai serves ")[2].partition(" of `sedna.io")[0],
            text.partition("5. **")[2].partition("are not served")[0],
        )
    )
    assert named_as_served == served
    assert len(refused) == 6
    assert not refused & served
