"""A name of a stand-in means one class, so that a reader of a test knows what it plays."""

import re
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]
NAMES = ("Clock", "Cluster", "Installation", "Job", "Manager", "Node", "Replica", "World")


def test_a_name_means_one_class() -> None:
    classes = Counter(
        name
        for path in TESTS.rglob("*.py")
        for name in re.findall(r"^ *class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert {name: classes[name] for name in NAMES} == dict.fromkeys(NAMES, 1)
