"""The tutorial of joint inference, typed from its page. Those that train are in tests/training."""

import shutil
from pathlib import Path

import pytest

from tests.docs.tutorials import follow


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH")
def test_each_command_prints_what_the_tutorial_shows(tmp_path: Path) -> None:
    assert follow("joint-inference.md", tmp_path, timeout_s=110) == []
    assert not (tmp_path / "files").exists()
