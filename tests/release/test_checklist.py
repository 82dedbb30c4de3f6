"""What must be true before a release; `make release-check` runs it after tests/deploy."""

import re
import subprocess
from datetime import date
from pathlib import Path
from typing import Final

import pytest

from common.version import VERSION
from tests.cluster import helm
from tests.cluster.images import Images
from tests.e2e.images import recipes

ROOT: Final = Path(__file__).parents[2]


def git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_all_changes_are_committed() -> None:
    assert git("status", "--porcelain") == ""


def test_the_changelog_begins_with_the_release() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(r"^## (.+)$", text, re.M)
    assert heading is not None
    assert heading[1] == f"{VERSION} - {date.today()}", "name the version and today's date"


def test_no_release_has_the_version() -> None:
    assert f"v{VERSION}" not in git("tag").splitlines(), "raise common/version.py"


def test_helm_finds_no_fault_in_the_chart() -> None:
    done = helm.helm("lint", "--strict", str(helm.CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.timeout(1200)  # the first time
def test_each_image_can_be_built() -> None:
    assert Images().archive(recipes()).stat().st_size > 0
