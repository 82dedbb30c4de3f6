"""Docstrings do not name their callers: an editor finds those, and the list would grow stale."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

CHECKOUT: Final = Path(__file__).parents[2]
PACKAGES: Final = (
    "common",
    "edgeai",
    "globalmanager",
    "localcontroller",
)
CALLERS: Final = re.compile(
    r"\b(Called|Built|Used) by\b|(?<!must) \bcalls? this (module|function)\b|\w+ calls it\."
)


def docstrings(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_do_not_name_their_callers(package: str) -> None:
    files = sorted((CHECKOUT / package).rglob("*.py"))
    assert files
    guilty = [
        f"{file.relative_to(CHECKOUT)}: {text.splitlines()[0]}"
        for file in files
        for text in docstrings(file)
        if CALLERS.search(text)
    ]
    assert guilty == []
