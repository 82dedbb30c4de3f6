"""A name of a stand-in means one class, so that a reader of a test knows what it plays."""

import ast
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]
NAMES = ("Clock", "Cluster", "Installation", "Job", "Manager", "Node", "Replica", "World")


def test_a_name_means_one_class() -> None:
    classes = Counter(
        node.name
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert {name: classes[name] for name in NAMES} == dict.fromkeys(NAMES, 1)
