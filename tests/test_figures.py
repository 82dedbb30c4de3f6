"""What tests/figures.py counts in a small checkout, with a trap for each figure."""

from pathlib import Path
from textwrap import dedent

import pytest

from tests import figures

TYPES = '''
    """Types of the sample. # no comment"""
    from collections.abc import Callable
    from typing import Protocol

    Clock = Callable[[], float]
    OptionalClock = Clock | None


    class Listener(Protocol):
        def __call__(self, text: str) -> None: ...


    def first(number: int) -> int:
        return number


    def second(number: int) -> int:
        """Docstrings are not

        counted as lines of a function.
        """
        number += 1
        # A comment between statements is.
        return number
'''
CODE = '''
    #!/usr/bin/env python3
    from dataclasses import dataclass
    from common.types import Clock as Time, Listener, OptionalClock

    TEXT = "lambda: # no comment"


    @dataclass
    class Fields:
        clock: Time
        name: str


    class Parameters:
        clock: Time

        def __init__(self, now: OptionalClock, *, listener: "Listener", size: int = 1) -> None:
            self._told = size  # told

        def run(self, clock: Time) -> None:
            pass  # noqa: PIE790


    def names(known: list[int], known_nodes: list[int]) -> list[int]:
        """Nine lines."""
        for each in known:
            found_again = each
        with open(TEXT) as given:
            pass
        kept = [
            node for node in known_nodes
        ]
        key = lambda told: told
        return kept
'''
# 24 lines, of which 10 have code, and one comment. first and second have 1 and 3 lines.
# Bindings: 2 aliases, text, self, number twice as a parameter and once by +=.
COMMON = "| common | 1 | 24 | 2 | 3 | 3 | 10.0 | 0 | 0 | 7 | 0.0 |"
# 34 lines, of which 23 have code, and one comment; bodies of 1, 1 and 9 lines. Callables: clock of
# Fields, now, listener. 20 bindings, of which 7 are participles: _told, known, each, found_again,
# given, kept, told.
GLOBALMANAGER = "| globalmanager | 1 | 34 | 1 | 7 | 9 | 4.3 | 3 | 1 | 20 | 35.0 |"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    files = {
        "common/types.py": TYPES,
        "edgeai/demo/service/worker.py": CODE,
        "globalmanager/kinds/code.py": CODE,
        "tests/world.py": CODE,
        "tests/test_world.py": TYPES,
    }
    for path, text in files.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text).lstrip(), encoding="utf-8")
    return tmp_path


def test_each_figure_of_a_package(checkout: Path) -> None:
    rows = figures.table(checkout).splitlines()

    assert [rows[2], rows[4]] == [COMMON, GLOBALMANAGER]


def test_the_product_is_all_packages_and_tests_are_apart(checkout: Path) -> None:
    titles = [row.split(" | ")[:3] for row in figures.table(checkout).splitlines()[5:]]

    assert titles == [
        ["| the product, without examples", "2", "58"],
        ["| globalmanager/kinds", "1", "34"],
        ["| support of tests", "1", "34"],
    ]


@pytest.mark.parametrize("name", ["each", "_told", "KNOWN", "found_again"])
def test_participles(name: str) -> None:
    assert figures.is_participle(name)


@pytest.mark.parametrize("name", ["known_nodes", "_", "other", "failed", "observed", "eachness"])
def test_nouns(name: str) -> None:
    assert not figures.is_participle(name)
