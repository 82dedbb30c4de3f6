"""Tutorials, typed from their pages. Those that train with a framework are in tests/training."""

import shutil
from pathlib import Path
from typing import Final

import pytest

from tests.docs.tutorials import follow

QUICK: Final = ("joint-inference.md", "your-own-functions.md", "rollout.md")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", QUICK)
def test_each_command_prints_what_the_tutorial_shows(page: str, tmp_path: Path) -> None:
    assert follow(page, tmp_path, timeout_s=280) == []
    assert not (tmp_path / "files").exists()
