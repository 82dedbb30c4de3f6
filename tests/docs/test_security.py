"""docs/security.md names, for each line, a test that there is."""

import ast
import functools
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "security.md"
TEST: Final = re.compile(r"`(tests/[^`:]+\.py)(?:::(\w+))?`")
ROLES: Final = ("CR author", "Viewer", "Node", "Worker", "Stranger")


def sections() -> dict[str, list[str]]:
    """Heading -> the lines of its tables, without their heads."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    bodies = zip(parts[1::2], parts[2::2], strict=True)
    return {
        role: [line for line in body.splitlines() if line.startswith("|")][2:]
        for role, body in bodies
    }


LINES: Final = [(role, line) for role, lines in sections().items() for line in lines]


@pytest.mark.parametrize("role", ROLES)
def test_each_role_has_lines(role: str) -> None:
    assert sections()[role]


@pytest.mark.parametrize(
    ("role", "line"), LINES, ids=[f"{r}-{n}" for n, (r, _) in enumerate(LINES)]
)
def test_each_line_names_a_test_that_there_is(role: str, line: str) -> None:
    named = TEST.findall(line)
    assert named, f"{role}: no test in {line}"
    for path, function in named:
        source = ROOT / path
        assert source.is_file(), f"{role}: no file {path}"
        assert not function or function in functions_of(source), f"{role}: no {function} in {path}"


@functools.cache
def functions_of(source: Path) -> set[str]:
    """The names of all test functions, also those of classes."""
    nodes = ast.walk(ast.parse(source.read_text()))
    found = {
        node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return {name for name in found if name.startswith("test_")}
