"""docs/kubernetes-versions.md: each supported version ran all suites, and other pages agree."""

import re

import pytest

from tests.cluster.binaries import minors, release
from tests.cluster.matrix import PAGE, WHOLE

ROW = re.compile(r"^\| (\d[\d.]+) \| (.+) \|$", re.MULTILINE)
ROWS = dict(ROW.findall(PAGE.read_text(encoding="utf-8")))


def test_each_supported_version_has_a_row() -> None:
    assert list(ROWS) == [release(minor) for minor in minors()]


@pytest.mark.parametrize("version", ROWS)
def test_all_suites_passed(version: str) -> None:
    *cells, run = ROWS[version].split(" | ")
    assert len(cells) == len(WHOLE)
    for cell in cells:
        assert re.fullmatch(r"[1-9]\d* passed(, \d+ skipped)?", cell)
    assert re.fullmatch(r"20\d\d-\d\d-\d\d, [0-9a-f]{8}", run)


@pytest.mark.parametrize("page", ["README.md", "docs/install.md", "docs/kubernetes-versions.md"])
def test_pages_name_the_range(page: str) -> None:
    text = (PAGE.parents[1] / page).read_text(encoding="utf-8")
    assert f"Kubernetes {minors()[0]} to {minors()[-1]}" in text
