"""What cloud, edge and command line share has one definition."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("common", "globalmanager", "localcontroller", "edgeai")


@pytest.mark.parametrize(
    ("pattern", "home"),
    [
        (r'"edgeai\.io/uid"', "edgeai/labels.py"),
        (r'"edgeai\.io/worker"', "edgeai/labels.py"),
        (r"strftime|isoformat\(|:%Y-", "edgeai/times.py"),
    ],
)
def test_one_module_defines(pattern: str, home: str) -> None:
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    found = [str(file.relative_to(ROOT)) for file in files if re.search(pattern, file.read_text())]
    assert found == [home]
